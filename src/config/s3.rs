//! Settings of `s3:`: the bucket, its server and the credential, as AWS's own clients find them. Files of
//! secrets are not read here; the backend does that, again and again while it runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::{Host, Url};

use super::aws_files::SharedFiles;
use super::endpoint;
use super::faults::{Fault, Problem, Source};
use super::reader::Reader;
use super::secret::{self, SecretSource};
use super::store_tls::StoreTls;
use super::store_url::Address;
use super::table::AWS_CREDENTIALS;
use super::values;

/// The variables of AWS's own clients, in the order of preference.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const STS_ENDPOINT: &str = "AWS_ENDPOINT_URL_STS";
const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ROLE: &str = "AWS_ROLE_ARN";
const SESSION: &str = "AWS_ROLE_SESSION_NAME";
const CONTAINER: [&str; 2] =
    ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
const CONTAINER_TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const MACHINE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
const NO_MACHINE: &str = "AWS_EC2_METADATA_DISABLED";

/// The region of servers that have none, which signatures must name all the same.
const NO_REGION: &str = "us-east-1";

/// Where ECS has the credentials of tasks.
const ECS: &str = "http://169.254.170.2";

/// The addresses at which ECS and EKS answer with plain http, beside loopback.
const OF_CONTAINERS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// Where EC2 has the credentials of machines.
const EC2: &str = "http://169.254.169.254";

/// Settings of `s3:`.
#[derive(Clone, Debug)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// The prefix of the keys, without a slash at either end.
    pub prefix: Option<String>,
    /// Name of the election, which the keys contain.
    pub election: String,
    /// The URL of the bucket: its host has the name, or its path has.
    pub url: Url,
    /// The region that requests are signed for.
    pub region: String,
    /// The source of credentials.
    pub credential: AwsCredential,
    /// The files of TLS; `None` for plain http.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

impl S3Settings {
    /// Returns the key of the object with the lease.
    #[must_use]
    pub fn key(&self) -> String {
        match &self.prefix {
            Some(prefix) => format!("{prefix}/{}", self.election),
            None => self.election.clone(),
        }
    }
}

/// The source of a credential for AWS.
#[derive(Clone, Debug)]
pub enum AwsCredential {
    /// Keys in variables.
    Keys {
        /// `AWS_ACCESS_KEY_ID`.
        id: SecretSource,
        /// `AWS_SECRET_ACCESS_KEY`.
        secret: SecretSource,
        /// `AWS_SESSION_TOKEN`.
        token: Option<SecretSource>,
    },
    /// Keys of a profile in the files that AWS's clients share.
    Profile {
        /// Its name.
        name: String,
        /// The files that may have it: that of credentials first.
        files: [PathBuf; 2],
    },
    /// A role that a token of the platform may take, as in EKS with IRSA.
    WebIdentity {
        /// The file with the token.
        token_file: PathBuf,
        /// The role.
        role: String,
        /// The name of the session, for AWS's logs.
        session: String,
        /// The URL of the Security Token Service.
        endpoint: Url,
    },
    /// The role of a task in ECS, or of a pod in EKS with Pod Identity.
    Container {
        /// The URL that answers with credentials.
        url: Url,
        /// The token to send to it.
        token: Option<SecretSource>,
    },
    /// The role of a machine in EC2.
    Machine {
        /// The URL of the Instance Metadata Service.
        endpoint: Url,
    },
}

/// Parses the region.
pub(super) fn region(text: &str) -> Result<String, Problem> {
    let is_usual = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    if !(1..=63).contains(&text.len()) || !text.bytes().all(is_usual) {
        let problem = "is not the name of a region, of a-z 0-9 -";
        return Err(Problem::new(problem, "write a region such as eu-central-1"));
    }
    Ok(text.to_owned())
}

/// Parses the URL of a server.
pub(super) fn server(text: &str) -> Result<Url, Problem> {
    const WRITE: &str =
        "write the scheme, host and port of the server, such as https://minio.example:9000";
    const SECRETS: &str = "pass credentials in the environment, such as AWS_ACCESS_KEY_ID";
    let url = endpoint::read(text, WRITE, SECRETS)?;
    if url.path() != "/" {
        return Err(Problem::new("has a path", WRITE));
    }
    Ok(url)
}

/// The part of the settings that stands in the table.
pub(super) struct S3Given {
    pub(super) endpoint: Option<Option<Url>>,
    pub(super) region: Option<Option<String>>,
    pub(super) path_style: Option<Option<bool>>,
    /// The files of AWS's clients, if the store is a bucket; `None` after a fault too.
    files: Option<SharedFiles>,
}

impl S3Given {
    /// Returns the address of the server, if it is one of plain http.
    pub(super) fn plain_address(&self) -> Option<Address> {
        let url = self.endpoint.as_ref()?.as_ref().filter(|it| it.scheme() == "http")?;
        Some(Address { host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }
}

impl Reader<'_> {
    /// Reads what the table has of a bucket; the variables and the files of AWS's own clients stand in for what
    /// is not set, if the store is one.
    pub(super) fn s3_given(&mut self, is_store: bool) -> S3Given {
        let mut endpoint = self.optional("s3-endpoint", server);
        let mut region = self.optional("s3-region", self::region);
        let mut path_style = self.optional("s3-path-style", values::switch);
        let mut files = None;
        if is_store {
            files = SharedFiles::read(self.environment, &mut self.layers.faults);
        }
        if let Some(files) = &files {
            if endpoint == Some(None) && !files.ignores_endpoints {
                endpoint = self.variable(&ENDPOINTS, server);
            }
            if endpoint == Some(None) {
                endpoint = self.of_file("endpoint_url", files.endpoint("s3"), server);
            }
            if region == Some(None) {
                region = self.variable(&REGIONS, self::region);
            }
            if region == Some(None) {
                region = self.of_file("region", files.value("region"), self::region);
            }
            if path_style == Some(None) {
                path_style = Some(match files.value("s3.addressing_style") {
                    Some((style, _)) if style == "path" => Some(true),
                    Some((style, _)) if style == "virtual" => Some(false),
                    _ => None,
                });
            }
        }
        S3Given { endpoint, region, path_style, files }
    }

    /// Parses what a file of AWS's clients has.
    fn of_file<T>(
        &mut self,
        name: &str,
        found: Option<(String, &Path)>,
        parse: impl Fn(&str) -> Result<T, Problem>,
    ) -> Option<Option<T>> {
        let Some((text, path)) = found else { return Some(None) };
        match parse(&text) {
            Ok(it) => Some(Some(it)),
            Err(problem) => {
                // Its text may contain a password.
                self.fault(name, None, Source::File(path.to_owned()), problem);
                None
            }
        }
    }

    /// Returns the settings of a store in a bucket.
    pub(super) fn s3(
        &mut self,
        bucket: String,
        prefix: Option<String>,
        given: S3Given,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<S3Settings> {
        let files = given.files?;
        let (endpoint, region) = (given.endpoint?, given.region?);
        let region = match (region, &endpoint) {
            (Some(region), _) => Some(region),
            (None, Some(_)) => Some(NO_REGION.to_owned()),
            (None, None) => {
                let problem = Problem::new(
                    "is not set, and neither AWS_REGION nor AWS_DEFAULT_REGION is, nor a region in the profile",
                    "set --s3-region to the region of the bucket, or --s3-endpoint to a server that is \
                     not AWS's",
                );
                self.fault("s3-region", None, Source::Default, problem);
                None
            }
        };
        let shown = region.as_deref().unwrap_or(NO_REGION);
        let credential = self.aws_credential(shown, &files);
        let tls = match (endpoint.as_ref().filter(|it| it.scheme() == "http"), tls?) {
            (Some(_), None) => None,
            (Some(url), Some(_)) => return self.plain(url),
            (None, tls) => tls.or(Some(StoreTls { ca_file: None, own: None })),
        };
        let path_style = given.path_style?.unwrap_or(endpoint.is_some());
        Some(S3Settings {
            url: url(&bucket, endpoint, region.as_ref()?, path_style)?,
            bucket,
            prefix,
            election: election?.to_owned(),
            region: region?,
            credential: credential?,
            tls,
            request_timeout: request_timeout?,
        })
    }

    /// Refuses an endpoint of plain http where TLS is used.
    fn plain<T>(&mut self, url: &Url) -> Option<T> {
        let is_remote = endpoint::is_remote_plain_http(url);
        let problem = if is_remote {
            "is plain http to another machine: anyone on the network path can take or free the lease"
        } else {
            "is plain http, and a file for TLS is set"
        };
        let remedy = "write https://…, or if the network is trusted, set --store-insecure";
        self.fault_of("s3-endpoint", Problem::new(problem, remedy));
        None
    }

    /// Parses the first of some variables that is set.
    fn variable<T>(
        &mut self,
        names: &[&str],
        parse: impl Fn(&str) -> Result<T, Problem>,
    ) -> Option<Option<T>> {
        let found = names.iter().find_map(|it| Some((*it, self.environment.get(it)?.to_owned())));
        let Some((name, text)) = found else { return Some(None) };
        match parse(&text) {
            Ok(it) => Some(Some(it)),
            Err(problem) => {
                // Its text may contain a password.
                self.fault(name, None, Source::Variable(name.to_owned()), problem);
                None
            }
        }
    }

    /// Chooses the source of credentials, in the order of AWS's own clients; `None` after a fault.
    fn aws_credential(&mut self, region: &str, files: &SharedFiles) -> Option<AwsCredential> {
        let before = self.layers.faults.len();
        let (environment, faults) = (self.environment, &mut self.layers.faults);
        let [id, secret, token] = AWS_CREDENTIALS.map(|it| secret::given(it, environment, faults));
        let given_token = secret::given(CONTAINER_TOKEN, environment, faults);
        if faults.len() > before {
            return None;
        }
        match (id, secret) {
            (Some(id), Some(secret)) => return Some(AwsCredential::Keys { id, secret, token }),
            (None, None) => (),
            (Some(_), None) => return half(AWS_CREDENTIALS[1], AWS_CREDENTIALS[0], faults),
            (None, Some(_)) => return half(AWS_CREDENTIALS[0], AWS_CREDENTIALS[1], faults),
        }
        if files.is_named || files.has_credentials() {
            let (name, files) = (files.profile.clone(), files.paths.clone());
            return Some(AwsCredential::Profile { name, files });
        }
        if let Some(token_file) = environment.get(TOKEN_FILE) {
            let Some(role) = environment.get(ROLE) else { return half(ROLE, TOKEN_FILE, faults) };
            let session = environment.get(SESSION).unwrap_or("tenure").to_owned();
            let (token_file, role) = (PathBuf::from(token_file), role.to_owned());
            let names = [STS_ENDPOINT, ENDPOINTS[1]];
            let mut endpoint = None;
            if !files.ignores_endpoints {
                endpoint = self.variable(&names, local_or_https)?;
            }
            if endpoint.is_none() {
                endpoint = self.of_file("endpoint_url", files.endpoint("sts"), local_or_https)?;
            }
            let usual = || Url::parse(&format!("https://sts.{region}.{}/", domain(region))).ok();
            let endpoint = endpoint.or_else(usual)?;
            return Some(AwsCredential::WebIdentity { token_file, role, session, endpoint });
        }
        let relative = environment.get(CONTAINER[0]).map(|it| format!("{ECS}{it}"));
        if let Some(text) = relative.or_else(|| environment.get(CONTAINER[1]).map(str::to_owned)) {
            let url = match local_or_https(&text) {
                Ok(url) => url,
                Err(problem) => {
                    let name = CONTAINER[1];
                    self.fault(name, None, Source::Variable(name.to_owned()), problem);
                    return None;
                }
            };
            return Some(AwsCredential::Container { url, token: given_token });
        }
        let disabled =
            environment.get(NO_MACHINE).is_some_and(|it| it.eq_ignore_ascii_case("true"));
        if disabled {
            let name = AWS_CREDENTIALS[0];
            let problem = Problem::new(
                "is not set, and there is no other credential: no profile, no role of a pod or task, and \
                 AWS_EC2_METADATA_DISABLED excludes that of a machine",
                format!("set {name} and {} or their files, by …_FILE", AWS_CREDENTIALS[1]),
            );
            self.fault(name, None, Source::Default, problem);
            return None;
        }
        let usual = || Url::parse(EC2).ok();
        let given = self.variable(&[MACHINE], |text| {
            Url::parse(text).map_err(|error| {
                Problem::new(format!("is not a URL: {error}"), format!("write {EC2}"))
            })
        })?;
        Some(AwsCredential::Machine { endpoint: given.or_else(usual)? })
    }
}

/// Records that one of two variables is missing.
fn half<T>(missing: &str, given: &str, faults: &mut Vec<Fault>) -> Option<T> {
    let problem = Problem::new(
        format!("is not set, and {given} is"),
        format!("set {missing}, or unset {given} to use another credential"),
    );
    faults.push(Fault::new(missing, None, Source::Variable(missing.to_owned()), problem));
    None
}

/// Parses a URL that credentials are fetched from: of https, or of a server that nobody between can
/// read.
fn local_or_https(text: &str) -> Result<Url, Problem> {
    let write = "write https://HOST/PATH, or http to this machine";
    let url = Url::parse(text).map_err(|it| Problem::new(format!("is not a URL: {it}"), write))?;
    let is_near = url.host_str().is_some_and(|it| OF_CONTAINERS.contains(&it))
        || url.host().is_some_and(|it| values::is_loopback(&it));
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_near => Ok(url),
        _ => Err(Problem::new("is neither https nor http to this machine", write)),
    }
}

/// Returns the URL of a bucket.
fn url(bucket: &str, endpoint: Option<Url>, region: &str, path_style: bool) -> Option<Url> {
    let mut url = match endpoint {
        Some(url) => url,
        None => Url::parse(&format!("https://s3.{region}.{}/", domain(region))).ok()?,
    };
    // A certificate for any name below a domain is for one part alone.
    let is_in_path = path_style || bucket.contains('.') && url.scheme() == "https";
    match url.host() {
        Some(Host::Domain(name)) if !is_in_path => {
            let name = format!("{bucket}.{name}");
            url.set_host(Some(&name)).ok()?;
        }
        _ => url.set_path(&format!("/{bucket}")),
    }
    Some(url)
}

/// Returns the domain of AWS that a region belongs to.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

#[cfg(all(test, feature = "s3"))]
mod tests;
