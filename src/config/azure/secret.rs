//! Reads secrets of a storage account as people paste them: a connection string, an account key or
//! a shared access signature. Each text is taken in its meaning, or refused with what is wrong and
//! what to do; no message shows a secret.

use std::fmt;
use std::sync::Arc;

use azure_core::base64;
use azure_core::credentials::Secret;
use url::{Url, form_urlencoded};

use super::super::faults::Problem;
use super::super::table::AZURE_CREDENTIALS;
use super::connection_string;

/// The length of an account key in bytes.
const KEY_LENGTH: usize = 64;

/// What a secret should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretForm {
    /// A connection string.
    ConnectionString,
    /// An account key.
    Key,
    /// A shared access signature.
    Sas,
}

impl SecretForm {
    /// Returns the variable that holds such a secret.
    pub(crate) fn variable(self) -> &'static str {
        let [connection_string, key, sas] = AZURE_CREDENTIALS;
        match self {
            Self::ConnectionString => connection_string,
            Self::Key => key,
            Self::Sas => sas,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::ConnectionString => "a connection string",
            Self::Key => "an account key",
            Self::Sas => "a shared access signature",
        }
    }
}

/// A secret that requests are authenticated with. `Debug` shows no part of it.
#[derive(Clone)]
pub(crate) enum AzureSecret {
    /// An account key, which signs each request.
    Key {
        /// The account.
        account: String,
        /// The key, in base64.
        key: Secret,
    },
    /// A shared access signature, as the parameters of a query.
    Sas(Arc<[(String, String)]>),
}

impl fmt::Debug for AzureSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key { .. } => "Key(…)",
            Self::Sas(_) => "Sas(…)",
        })
    }
}

/// Removes what surrounds a secret in the file or variable that it was pasted into.
pub(super) fn bare(text: &str, form: SecretForm) -> Result<&str, Problem> {
    let mut text = unquoted(text.trim_start_matches('\u{feff}').trim())?;
    // A whole line of a shell script, or of a file for `--env-file`.
    let line = text.strip_prefix("export ").map_or(text, str::trim_start);
    if let Some(value) =
        line.strip_prefix(form.variable()).and_then(|it| it.trim_start().strip_prefix('='))
    {
        text = unquoted(value.trim())?;
    }
    if text.is_empty() {
        return Err(Problem::new("is empty", format!("set it to {}", form.words())));
    }
    if text.contains('\0') || text.contains('\u{fffd}') {
        return Err(Problem::new("is not UTF-8 text", "save the file as UTF-8"));
    }
    if let Some(problem) = unresolved(text) {
        return Err(problem);
    }
    if text.starts_with(['{', '[']) {
        let remedy = "take the value out of it: az storage account … -o tsv prints it alone";
        return Err(Problem::new("is JSON", remedy));
    }
    if text.contains("&amp;") {
        return Err(Problem::new("has &amp; inside, as in XML", "write & instead"));
    }
    match Shape::of(text) {
        Shape::Url => Err(Problem::new(
            format!("is a URL, not {}", form.words()),
            format!(
                "set {} to what follows its ?, if it has a signature",
                SecretForm::Sas.variable()
            ),
        )),
        Shape::Encoded => {
            let remedy =
                "decode it: data of a Secret in Kubernetes is encoded once, stringData not";
            Err(Problem::new("is encoded in base64", remedy))
        }
        Shape::Of(other) if other != form => Err(Problem::new(
            format!("is {}, not {}", other.words(), form.words()),
            format!("set {} to it instead", other.variable()),
        )),
        _ => Ok(text),
    }
}

/// What a text looks like.
enum Shape {
    Of(SecretForm),
    Url,
    /// A connection string or a signature, in base64.
    Encoded,
    Unknown,
}

impl Shape {
    fn of(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        let has_signature =
            |it: &str| it.trim_start_matches('?').split('&').any(|it| it.starts_with("sig="));
        if lower.starts_with("http://") || lower.starts_with("https://") {
            return Self::Url;
        }
        if connection_string::has_parts(text) {
            return Self::Of(SecretForm::ConnectionString);
        }
        if has_signature(text) {
            return Self::Of(SecretForm::Sas);
        }
        let bytes = decoded(text).unwrap_or_default();
        let inner = str::from_utf8(&bytes).unwrap_or_default();
        if connection_string::has_parts(inner) || has_signature(inner) {
            Self::Encoded
        } else if bytes.len() == KEY_LENGTH {
            Self::Of(SecretForm::Key)
        } else {
            Self::Unknown
        }
    }
}

/// Removes one pair of quotation marks.
pub(super) fn unquoted(text: &str) -> Result<&str, Problem> {
    for (open, close) in [('"', '"'), ('\'', '\''), ('“', '”'), ('‘', '’')] {
        if let Some(rest) = text.strip_prefix(open) {
            return rest.strip_suffix(close).map(str::trim).ok_or_else(|| {
                let problem = "begins with a quotation mark, but does not end with one";
                Problem::new(problem, "remove it, or add the other")
            });
        }
    }
    Ok(text)
}

/// Returns what is wrong with a reference or placeholder that nothing replaced by its value.
pub(super) fn unresolved(text: &str) -> Option<Problem> {
    const REPLACE: &str = "put the value itself in its place";
    let lower = text.to_ascii_lowercase();
    let (what, remedy) = if lower.starts_with("@microsoft.keyvault(") {
        let remedy = "let the app's identity read the secret (role \"Key Vault Secrets User\") and \
                      reach the vault, and restart the app; the portal shows the reference's state";
        ("a Key Vault reference", remedy)
    } else if lower.starts_with("@microsoft.") {
        ("a reference to another service", REPLACE)
    } else if lower.starts_with("secretref:") {
        ("a reference to a secret", REPLACE)
    } else if text.starts_with('$') || (text.starts_with('%') && text.ends_with('%')) {
        ("the name of a variable", REPLACE)
    } else if ["{{", "#{", "<", "__"].iter().any(|it| text.starts_with(it)) {
        ("a placeholder", REPLACE)
    } else {
        return None;
    };
    Some(Problem::new(format!("is {what} that was not replaced by its value"), remedy))
}

/// Decodes base64 that may be wrapped.
fn decoded(text: &str) -> Option<Vec<u8>> {
    base64::decode(joined(text)).ok()
}

fn joined(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}

/// Parses an account key. The problem is the end of a sentence about the key.
pub(super) fn key(account: &str, text: &str) -> Result<AzureSecret, Problem> {
    let Some(bytes) = decoded(text).filter(|it| !it.is_empty()) else {
        let remedy = "copy the whole key, with the = at its end";
        return Err(Problem::new("is not valid base64", remedy));
    };
    let inner = str::from_utf8(&bytes).ok();
    if inner.and_then(decoded).is_some_and(|it| it.len() == KEY_LENGTH) {
        let remedy = "encode it once: data of a Secret in Kubernetes is encoded, stringData is not";
        return Err(Problem::new("is encoded in base64 twice", remedy));
    }
    Ok(AzureSecret::Key { account: account.to_owned(), key: Secret::new(joined(text)) })
}

/// Parses a shared access signature, with or without its question mark. The problem is the end of a
/// sentence about the signature.
pub(super) fn sas(text: &str) -> Result<AzureSecret, Problem> {
    const COPY: &str = "copy the whole SAS token as the portal or the CLI shows it";
    let text = text.trim().trim_start_matches(['?', '&']);
    if text.contains(char::is_whitespace) {
        return Err(Problem::new("has white space inside", COPY));
    }
    // Where it was decoded before it was pasted, a + is itself and no space: none of its values has
    // one.
    let text = text.replace('+', "%2B");
    let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    let value = |name: &str| {
        let mut values = pairs.iter().filter(|(it, _)| it == name).map(|(_, value)| value.as_str());
        (values.next().filter(|it| !it.is_empty()), values.next().is_some())
    };
    for name in ["sv", "sig"] {
        match value(name) {
            (None, _) => {
                return Err(Problem::new(format!("has no {name}= parameter"), COPY));
            }
            (_, true) => return Err(Problem::new(format!("has {name}= twice"), COPY)),
            (Some(_), false) => {}
        }
    }
    let signature = value("sig").0.unwrap_or_default();
    if signature.contains('%') {
        return Err(Problem::new("is percent-encoded twice", COPY));
    }
    if !signature.bytes().all(|it| it.is_ascii_alphanumeric() || b"+/=-_".contains(&it)) {
        return Err(Problem::new("has a sig= parameter that is not base64", COPY));
    }
    for (name, wanted, words) in
        [("ss", 'b', "the service blob"), ("srt", 'o', "the resource type object")]
    {
        if value(name).0.is_some_and(|it| !it.contains(wanted)) {
            let remedy = format!("create one with {words}, or one for the container");
            return Err(Problem::new(
                format!("is not for {words} ({name}= lacks {wanted})"),
                remedy,
            ));
        }
    }
    Ok(AzureSecret::Sas(pairs.into()))
}

/// The secret in a text, with the endpoint that a connection string means.
pub(crate) struct ReadSecret {
    /// The secret.
    pub(crate) secret: AzureSecret,
    /// The endpoint, of a connection string.
    pub(crate) endpoint: Option<Url>,
}

/// What a secret must fit to.
pub(super) struct Place<'a> {
    /// The account in `store`.
    pub(super) account: &'a str,
    /// The endpoint in use.
    pub(super) endpoint: &'a Url,
    /// Whether `azure-endpoint` was given.
    pub(super) is_given: bool,
}

impl Place<'_> {
    /// Returns the account of the endpoint in use: that of `store`, unless `azure-endpoint` names
    /// another.
    pub(super) fn account(&self) -> String {
        super::endpoint::account(self.endpoint).unwrap_or_else(|_| self.account.to_owned())
    }

    /// Reads a secret. A connection string must be for the account and, unless `azure-endpoint`
    /// was given, for the endpoint: no secret leads to another lock.
    pub(super) fn read(&self, form: SecretForm, text: &str) -> Result<ReadSecret, Vec<Problem>> {
        let text = bare(text, form).map_err(|it| vec![it])?;
        let secret = match form {
            SecretForm::ConnectionString => return self.connection_string(text),
            SecretForm::Key => key(&self.account(), text),
            SecretForm::Sas => sas(text),
        };
        Ok(ReadSecret { secret: secret.map_err(|it| vec![it])?, endpoint: None })
    }

    fn connection_string(&self, text: &str) -> Result<ReadSecret, Vec<Problem>> {
        let read = connection_string::parse(text)?;
        let (account, named) = (self.account(), &read.account);
        if *named != account {
            let whose = if account == self.account { "--store" } else { "--azure-endpoint" };
            return Err(vec![Problem::new(
                format!("is for the account {named}, but {whose} names {account}"),
                format!("use a connection string of {account}, or name {named} there"),
            )]);
        }
        if !self.is_given && read.endpoint != *self.endpoint {
            if read.endpoint.host() == self.endpoint.host() && read.endpoint.scheme() == "http" {
                return Err(vec![Problem::new(
                    "names the account's endpoint over plain http",
                    "write https, in DefaultEndpointsProtocol or BlobEndpoint",
                )]);
            }
            let [named, meant] = [&read.endpoint, self.endpoint].map(shown);
            return Err(vec![Problem::new(
                format!(
                    "names the endpoint {named}, but --store means {meant} without \
                     --azure-endpoint: instances that go there would have a lock of their own"
                ),
                format!("set --azure-endpoint {named} for every instance, if that is meant"),
            )]);
        }
        Ok(ReadSecret { secret: read.secret, endpoint: Some(read.endpoint) })
    }
}

/// Shows an endpoint as people write it.
pub(crate) fn shown(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests;
