//! A real Prometheus that scrapes the targets of a test and answers queries.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use url::form_urlencoded::Serializer;

/// A Prometheus process; killed with the test.
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts it with a configuration in this directory and a rules file, to scrape the targets
    /// each second. It adds `labels` to their series.
    pub fn start(
        directory: &Path,
        rules: &Path,
        targets: &[SocketAddr],
        labels: &[(&str, &str)],
    ) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], crate::ports::free_port()));
        let settings = serde_json::json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [rules],
            "scrape_configs": [{
                "job_name": "tenure",
                "static_configs": [{
                    "targets": targets.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
                    "labels": labels.iter().copied().collect::<BTreeMap<_, _>>(),
                }],
            }],
        });
        // JSON is valid YAML.
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, settings.to_string()).unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("series").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("prometheus.log")).unwrap())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "prometheus: {error}; install the Debian package prometheus, or run \
                     tests/run --tools"
                )
            });
        Self { child, address }
    }

    /// Sends a request to its API, and returns the data of the answer; `None` as long as that is an
    /// error.
    pub fn ask(&self, path: &str, question: &[(&str, &str)]) -> Option<Value> {
        let question = Serializer::new(String::new()).extend_pairs(question).finish();
        let bound = Duration::from_secs(10);
        let mut stream = TcpStream::connect_timeout(&self.address, bound).ok()?;
        stream.set_read_timeout(Some(bound)).ok()?;
        // In HTTP/1.0 the answer is not chunked.
        write!(stream, "GET /api/v1/{path}?{question} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let document: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        assert_ne!(document["errorType"], "bad_data", "{question}: {}", document["error"]);
        (document["status"] == "success").then(|| document["data"].clone())
    }

    /// Returns the current result of a query; `None` as long as it is empty.
    pub fn query(&self, query: &str) -> Option<Vec<Value>> {
        let series = self.ask("query", &[("query", query)])?["result"].as_array()?.clone();
        (!series.is_empty()).then_some(series)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
