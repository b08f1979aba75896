//! What each code of Microsoft's lists ("Blob Service Error Codes", "Common REST API Error Codes") means that a
//! lease can meet, unless it denies access or ends a lease: with the setting to change.

use super::VERSION;
use crate::lease::Cause;

const KEY_VAULT: &str = "the account is encrypted with a key of a key vault that it cannot use: \
                                    check that vault and key exist and are enabled, that the account's \
                                    identity may use the key, and the vault's firewall";

const ENCRYPTION_SCOPE: &str = "the encryption scope of the container or the SAS is disabled, or is \
                                           not the one that the container requires: enable it, or use another \
                                           container";

pub(super) const IMMUTABLE: &str = "the container or the blob has an immutability policy or a legal hold, and the \
                                    lease needs to change the blob's metadata: use a container without";

pub(super) const NOT_AZURE: &str = "the answer is not from Azure Blob Storage: check the endpoint, and whether a \
                                    proxy intercepts requests";

const INVALID: &str =
    "the store rejected the request as invalid: check container, prefix and endpoint";

const UNUSUAL: &str = "the store rejected the request";

/// Returns the cause and the words for an answer that denies no access.
pub(super) fn explain(status: u16, code: &str) -> (Cause, String) {
    if (status, code) == (503, "ServerBusy") {
        return by_status(429);
    }
    let known = Some(code).filter(|_| (400..500).contains(&status) && status != 429);
    known.and_then(by_code).unwrap_or_else(|| by_status(status))
}

/// Explains the codes that name their cause.
pub(super) fn by_code(code: &str) -> Option<(Cause, String)> {
    let settings = |words| Some((Cause::Settings, words));
    let (cause, words) = match code {
        "InvalidHeaderValue" | "UnsupportedHeader" => settings(
            "the store does not know the API version VERSION: update Azurite to 3.35 or newer; an \
             Azure Stack Hub that has only older versions cannot keep the lease",
        ),
        "AccountRequiresHttps" => settings(
            "the account allows https only: use an https endpoint in --azure-endpoint or in the \
             connection string",
        ),
        "AccountBeingCreated" => {
            settings("the account is being created: it can be used in some minutes")
        }
        "BlobArchived" | "BlobBeingRehydrated" => settings(
            "the blob is archived and cannot be leased: move it to the hot tier, and exclude it from \
             lifecycle rules",
        ),
        "BlobNotFound" => settings("the blob does not exist"),
        "ContainerNotFound" => {
            settings("the container does not exist: create it, or run `tenure doctor --create`")
        }
        "ContainerDisabled" | "ContainerBeingDisabled" => settings(
            "the container was disabled by the administrator of the account: enable it, or use another",
        ),
        "ContainerBeingDeleted" => Some((
            Cause::Unavailable,
            "the container is being deleted: it can be created again after 30 s or more",
        )),
        "PendingCopyOperation" => settings(
            "another program copies into the blob: end that, or choose another --azure-blob-prefix",
        ),
        "MetadataTooLarge" | "InvalidMetadata" | "EmptyMetadataKey" => settings(
            "the store rejected the metadata of the blob: remove what other programs wrote there, or \
             choose another --azure-blob-prefix",
        ),
        "InvalidResourceName" | "InvalidUri" | "RequestUrlFailedToParse" => settings(
            "the store rejected the name of the container or the blob: check the container in --store, \
             --election and --azure-blob-prefix",
        ),
        "InvalidQueryParameterValue"
        | "OutOfRangeQueryParameterValue"
        | "UnsupportedQueryParameter"
        | "MissingRequiredQueryParameter" => settings(
            "the store rejected a parameter of the request: copy the whole SAS, without other \
             parameters of a URL",
        ),
        "FeatureVersionMismatch" => settings(
            "the stored access policy of the SAS has a permission that the API version VERSION does not \
             know: change it to read, create and write",
        ),
        "ResourceTypeMismatch" | "OperationNotAllowedOnDirectory" | "InvalidBlobType" => settings(
            "the name of the blob belongs to a directory or a blob of another kind: choose another \
             --election or --azure-blob-prefix",
        ),
        "BlobOperationNotSupported"
        | "FeatureNotSupportedForAccount"
        | "UnsupportedRestVersion" => settings(
            "the account does not support what the lease needs: use a general-purpose v2 account, or \
             another container",
        ),
        "FilesystemNotFound" | "PathNotFound" => settings(
            "this is the endpoint of Data Lake Storage (dfs): use the blob endpoint of the account",
        ),
        "LeaseIdMissing" => Some((
            Cause::Lease,
            "the blob is leased, so that nothing was written to it: wait until the lease is over",
        )),
        _ => by_family(code),
    }?;
    Some((cause, words.replace("VERSION", VERSION)))
}

/// Explains the codes of which there are several for one cause.
fn by_family(code: &str) -> Option<(Cause, &'static str)> {
    let words = match code {
        _ if code.contains("Immutab") || code.contains("LegalHold") => IMMUTABLE,
        _ if code.starts_with("KeyVault") => KEY_VAULT,
        "RequestForbiddenByContainerEncryptionPolicy" => ENCRYPTION_SCOPE,
        _ if code.contains("EncryptionScope") => ENCRYPTION_SCOPE,
        _ if code.contains("CustomerSpecifiedEncryption") => {
            "another program has encrypted the blob with a key of its own: choose another \
             --azure-blob-prefix"
        }
        _ => return None,
    };
    Some((Cause::Settings, words))
}

fn by_status(status: u16) -> (Cause, String) {
    let (cause, words) = match status {
        300..=399 => (
            Cause::Settings,
            "the store answered with a redirect, which Tenure does not follow: check the endpoint",
        ),
        404 => (
            Cause::Settings,
            "the account or endpoint does not exist: check --store and --azure-endpoint",
        ),
        421 => (
            Cause::Settings,
            "the server does not serve this endpoint: check --azure-endpoint, and where its name \
             leads from here",
        ),
        429 => (Cause::Throttled, "the store throttles requests"),
        500.. => (Cause::Unavailable, "the store failed internally; it usually recovers by itself"),
        400 | 405 | 411 | 413 | 415 | 416 => (Cause::Settings, INVALID),
        _ => (Cause::Unavailable, UNUSUAL),
    };
    (cause, words.to_owned())
}

/// Returns the cause and the words for an answer that is not Azure's, since it has no id of its request.
pub(super) fn explain_foreign(status: u16) -> (Cause, String) {
    let (cause, words) = match status {
        407 => (
            Cause::Settings,
            "a proxy demands a sign-in, and the request did not reach the store: set its user and \
             password in HTTPS_PROXY, or except the store in NO_PROXY",
        ),
        401 | 403 => (
            Cause::Settings,
            "a proxy or firewall on the way refused the request, which did not reach the store: \
             allow the endpoint there, or except it in NO_PROXY",
        ),
        429 | 500.. => (
            Cause::Unavailable,
            "a proxy or load balancer on the way failed, and the request may not have reached the \
             store",
        ),
        300..=399 => return by_status(status),
        _ => (Cause::Settings, NOT_AZURE),
    };
    (cause, words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_a_fault_of_the_settings_with_its_own_remedy() {
        for (status, code, words) in [
            (400, "InvalidHeaderValue", "API version 2023-11-03"),
            (400, "UnsupportedHeader", "update Azurite"),
            (400, "AccountRequiresHttps", "https endpoint"),
            (400, "InvalidResourceName", "--azure-blob-prefix"),
            (400, "InvalidUri", "--azure-blob-prefix"),
            (400, "InvalidQueryParameterValue", "copy the whole SAS"),
            (400, "MetadataTooLarge", "metadata"),
            (400, "OutOfRangeInput", "invalid"),
            (404, "BlobNotFound", "the blob does not exist"),
            (404, "ContainerNotFound", "doctor --create"),
            (404, "ResourceNotFound", "account or endpoint does not exist"),
            (404, "FilesystemNotFound", "blob endpoint"),
            (409, "AccountBeingCreated", "being created"),
            (409, "BlobArchived", "hot tier"),
            (409, "BlobBeingRehydrated", "hot tier"),
            (409, "BlobImmutableDueToPolicy", "immutability policy"),
            (409, "BlobImmutableDueToLegalHold", "legal hold"),
            (409, "BlobUsesCustomerSpecifiedEncryption", "encrypted the blob"),
            (409, "BlobCustomerSpecifiedEncryptionMismatch", "encrypted the blob"),
            (409, "BlobOperationNotSupported", "general-purpose v2"),
            (409, "ContainerDisabled", "enable it"),
            (409, "FeatureVersionMismatch", "stored access policy"),
            (409, "PendingCopyOperation", "copies into the blob"),
            (409, "ResourceTypeMismatch", "directory"),
            (409, "EncryptionScopeDisabled", "encryption scope"),
            (421, "", "where its name leads"),
        ] {
            let (cause, found) = explain(status, code);
            assert_eq!(cause, Cause::Settings, "{code}");
            assert!(found.contains(words), "{code}: {found}");
        }
    }

    #[test]
    fn what_ends_by_itself_is_no_fault_of_the_settings() {
        for (status, code, cause) in [
            (409, "ContainerBeingDeleted", Cause::Unavailable),
            (409, "SomethingNew", Cause::Unavailable),
            (412, "LeaseIdMissing", Cause::Lease),
            (429, "BlobNotFound", Cause::Throttled),
            (500, "BlobNotFound", Cause::Unavailable),
            (500, "OperationTimedOut", Cause::Unavailable),
            (503, "ServerBusy", Cause::Throttled),
            (503, "", Cause::Unavailable),
        ] {
            assert_eq!(explain(status, code).0, cause, "{status} {code}");
        }
    }
}
