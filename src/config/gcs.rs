//! Settings of `gs:`: the bucket, and the credential as Google's own clients find it. Files of secrets are not
//! read here; the backend does that, again and again while it runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::endpoint;
use super::environment::Environment;
use super::faults::{Problem, Source};
use super::reader::Reader;
use super::store_tls::StoreTls;
use super::store_url::Address;

/// The file of a credential.
const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// An emulator, in place of Google's servers. It asks for no credential, and gets one only from a file.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// The host of the metadata server, if it is another, in the order of preference.
const METADATA: [&str; 2] = ["GCE_METADATA_HOST", "GCE_METADATA_ROOT"];

/// Whether there is none.
const NO_METADATA: &str = "NO_GCE_CHECK";

/// The directory of gcloud, if it is another than that of the home.
const GCLOUD: &str = "CLOUDSDK_CONFIG";

/// Google's server.
const SERVER: &str = "https://storage.googleapis.com/";

/// The metadata server of machines, and of pods with a service account of Google's.
const MACHINE: &str = "metadata.google.internal";

/// Settings of `gs:`.
#[derive(Clone, Debug)]
pub struct GcsSettings {
    /// The bucket.
    pub bucket: String,
    /// The prefix of the names, without a slash at either end.
    pub prefix: Option<String>,
    /// Name of the election, which the names contain.
    pub election: String,
    /// The server.
    pub server: Url,
    /// The source of tokens.
    pub credential: GoogleCredential,
    /// The files of TLS; `None` for plain http.
    pub tls: Option<StoreTls>,
    /// The bound on one request.
    pub request_timeout: Duration,
}

impl GcsSettings {
    /// Returns the name of the object with the lease.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.prefix {
            Some(prefix) => format!("{prefix}/{}", self.election),
            None => self.election.clone(),
        }
    }
}

/// The source of tokens for Google.
#[derive(Clone, Debug)]
pub enum GoogleCredential {
    /// None is needed: an emulator.
    None,
    /// A file with the key of a service account, with the login of a user, or with the way to the token of
    /// another cloud or cluster (workload identity federation).
    File(PathBuf),
    /// The service account of a machine, or by GKE's workload identity of a pod.
    Machine {
        /// The URL of the metadata server.
        endpoint: Url,
    },
}

impl Reader<'_> {
    /// Returns the address of an emulator of plain http.
    pub(super) fn plain_emulator(&self) -> Option<Address> {
        let url = emulator(self.environment)?.ok().filter(|it| it.scheme() == "http")?;
        Some(Address { host: url.host()?.to_owned(), port: url.port_or_known_default()? })
    }

    /// Returns the settings of a store in a bucket of Google's.
    pub(super) fn gcs(
        &mut self,
        bucket: String,
        prefix: Option<String>,
        election: Option<&str>,
        tls: Option<Option<StoreTls>>,
        request_timeout: Option<Duration>,
    ) -> Option<GcsSettings> {
        let emulator = match emulator(self.environment) {
            Some(Err(problem)) => {
                self.fault(EMULATOR, None, Source::Variable(EMULATOR.to_owned()), problem);
                return None;
            }
            it => it.and_then(Result::ok),
        };
        let tls = tls?;
        let is_plain = emulator.as_ref().is_some_and(|it| it.scheme() == "http");
        if is_plain && tls.is_some() {
            let problem = Problem::new(
                "is plain http to another machine, or a file for TLS is set",
                "write https://…, or if the network is trusted, set --store-insecure",
            );
            self.fault(EMULATOR, None, Source::Variable(EMULATOR.to_owned()), problem);
            return None;
        }
        let credential = match (&emulator, self.environment.get(FILE)) {
            (_, Some(path)) => GoogleCredential::File(path.into()),
            (Some(_), None) => GoogleCredential::None,
            (None, None) => self.google_credential()?,
        };
        Some(GcsSettings {
            bucket,
            prefix,
            election: election?.to_owned(),
            server: emulator.or_else(|| Url::parse(SERVER).ok())?,
            credential,
            tls: if is_plain { None } else { tls.or(Some(StoreTls { ca_file: None, own: None })) },
            request_timeout: request_timeout?,
        })
    }

    /// Chooses the source of tokens where no variable names a file, in the order of Google's own clients;
    /// `None` after a fault.
    fn google_credential(&mut self) -> Option<GoogleCredential> {
        let home = self.environment.get("HOME").map(|it| Path::new(it).join(".config/gcloud"));
        let directory = self.environment.get(GCLOUD).map(PathBuf::from).or(home);
        let login = directory.map(|it| it.join("application_default_credentials.json"));
        if let Some(path) = login.filter(|it| it.is_file()) {
            return Some(GoogleCredential::File(path));
        }
        if self.environment.get(NO_METADATA).is_some_and(|it| it.eq_ignore_ascii_case("true")) {
            let problem = Problem::new(
                format!(
                    "is not set, and there is no other credential: no login of gcloud, and {NO_METADATA} \
                     excludes that of a machine"
                ),
                format!("set {FILE} to the file of a credential"),
            );
            self.fault(FILE, None, Source::Default, problem);
            return None;
        }
        let given = METADATA.into_iter().find_map(|it| Some((it, self.environment.get(it)?)));
        let (name, host) = given.unwrap_or((METADATA[0], MACHINE));
        let Some(endpoint) =
            Url::parse(&format!("http://{host}/")).ok().filter(|it| it.path() == "/")
        else {
            let problem =
                Problem::new("is not HOST or HOST:PORT", format!("unset it, or write {MACHINE}"));
            self.fault(name, None, Source::Variable(name.to_owned()), problem);
            return None;
        };
        Some(GoogleCredential::Machine { endpoint })
    }
}

/// Returns the URL of the emulator that is set.
fn emulator(environment: &Environment) -> Option<Result<Url, Problem>> {
    const WRITE: &str = "write http://127.0.0.1:PORT, or unset it to use Google's servers";
    let text = environment.get(EMULATOR)?;
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    Some(endpoint::read(&text, WRITE, "an emulator asks for no credentials").and_then(|url| {
        match url.path() {
            "/" => Ok(url),
            _ => Err(Problem::new("has a path", WRITE)),
        }
    }))
}

#[cfg(all(test, feature = "gcs"))]
mod tests;
