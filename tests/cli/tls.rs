//! TLS from the user's view: a sidecar whose certificate is replaced while it serves, the verbs that
//! ask it, and what each of them says about wrong files.

use testkit::faults::tls_front::Authority;
use testkit::http::mounted::{FAR, Mounted};
use testkit::processes::process;

use std::net::SocketAddr;
use std::path::Path;

use process::{BOUND, Process, run_verb, until};
use serde_json::Value;

/// Starts a sidecar with a plain address on loopback and another with TLS.
fn sidecar(mounted: &Mounted, more: &[&str]) -> Process {
    let [cert, key] = ["tls.crt", "tls.key"].map(|it| shown(&mounted.path(it)));
    let arguments =
        ["--store", "memory:", "--listen", "0.0.0.0:0", "--tls-cert", &cert, "--tls-key", &key];
    let process = Process::run("it", &[&arguments[..], more].concat(), &[]);
    until(BOUND, "it leads", || process.is_leader().then_some(()));
    process
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns the URL of the address with TLS.
fn url(process: &Process) -> String {
    let port = until(BOUND, "both listen", || {
        let output = process.out() + &process.log();
        let lines = output.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let mut with_tls = lines.filter(|it| it["tls"] == true);
        with_tls.find_map(|it| it["listening"].as_str()?.parse::<SocketAddr>().ok())
    });
    format!("https://localhost:{}", port.port())
}

#[test]
fn verbs_ask_a_listener_with_tls_and_the_plain_one_beside_it() {
    let mounted = Mounted::new(&Authority::new("ours"), FAR);
    let process = sidecar(&mounted, &[]);
    let (url, ca) = (url(&process), shown(&mounted.path("ca.crt")));
    for verb in [&["status"][..], &["check"], &["wait", "--for", "active", "--timeout", "20s"]] {
        let ran = run_verb(&[verb, &["--url", &url, "--ca-file", &ca]].concat(), &[]);
        assert_eq!(ran.code, 0, "{verb:?}: {}", ran.err);
    }
    let by_variables = [("TENURE_URL", url.as_str()), ("TENURE_CA_FILE", &ca)];
    assert_eq!(run_verb(&["check"], &by_variables).code, 0);
    let exactly_one =
        ["wait", "--for", "exactly-one", "--timeout", "20s", "--url", &url, "--ca-file", &ca];
    assert_eq!(run_verb(&exactly_one, &[]).code, 0, "each address of the name");
    let mut watch = Process::verb(&["watch", "--url", &url, "--ca-file", &ca], &[]);
    let line = watch.line(0, BOUND).expect("the present status");
    assert!(line.contains("\"role\":\"active\""), "{line}");
    let plain = format!("http://{}", process.address);
    assert_eq!(run_verb(&["check", "--url", &plain], &[]).code, 0);
}

#[test]
fn a_verb_that_cannot_use_tls_says_why_and_what_to_do() {
    let mounted = Mounted::new(&Authority::new("ours"), FAR);
    let ca = shown(&mounted.path("ca.crt"));
    let process = sidecar(&mounted, &["--tls-client-ca", &ca]);
    let url = url(&process);
    let by_address = url.replace("localhost", "127.0.0.1");
    let without_tls = format!("https://{}", process.address);
    let plain = url.replace("https", "http");
    let key = shown(&mounted.path("tls.key"));
    let cases: &[(&[&str], &[&str])] = &[
        (&["--url", &url, "--ca-file", &ca], &["CertificateRequired", "--cert and --key"]),
        (&["--url", &url], &["UnknownIssuer", "--ca-file"]),
        (&["--url", &by_address, "--ca-file", &ca], &["not valid for name", "the host in the URL"]),
        (&["--url", &without_tls, "--ca-file", &ca], &["no TLS with", "write http://"]),
        (&["--url", &plain], &["answers 400", "write https://HOST:PORT"]),
        (&["--url", &url, "--ca-file", "/none"], &["ca-file = \"/none\"", "cannot be read"]),
        (&["--url", &url, "--ca-file", &key], &["ca-file = ", "contains no certificate"]),
        (&["--url", &url, "--key", &key], &["key is set, but cert is not", "TENURE_CERT"]),
    ];
    for (arguments, words) in cases {
        let ran = run_verb(&[&["check"], *arguments].concat(), &[]);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        for word in *words {
            assert!(ran.err.contains(word), "{arguments:?}: {word} in {}", ran.err);
        }
    }
    let own = [("TENURE_CERT", shown(&mounted.path("tls.crt"))), ("TENURE_KEY", key)];
    let own = own.each_ref().map(|(name, path)| (*name, path.as_str()));
    let ran = run_verb(&["check", "--url", &url, "--ca-file", &ca], &own);
    assert_eq!(ran.code, 0, "{}", ran.err);
    until(BOUND, "the log says what the clients lack", || {
        process.log().contains("which --tls-client-ca requires").then_some(())
    });
}

#[test]
fn a_replaced_certificate_is_used_without_a_restart_and_a_spoilt_one_is_not() {
    let (first, next) = (Authority::new("first"), Authority::new("next"));
    let mut mounted = Mounted::new(&first, FAR);
    let process = sidecar(&mounted, &[]);
    let url = url(&process);
    let trusted = tempfile::tempdir().unwrap();
    let file = |name: &str, authority: &Authority| {
        let path = trusted.path().join(name);
        std::fs::write(&path, &authority.certificate).unwrap();
        shown(&path)
    };
    let (of_first, of_next) = (file("first", &first), file("next", &next));
    let is_accepted =
        |ca: &str| run_verb(&["check", "--url", &url, "--ca-file", ca], &[]).code == 0;
    assert!(is_accepted(&of_first) && !is_accepted(&of_next));
    // This stream is open all the time.
    let mut watch = Process::verb(&["watch", "--url", &url, "--ca-file", &of_first], &[]);
    watch.line(0, BOUND).expect("the present status");

    let (certificate, _) = next.sign_pem("localhost", FAR);
    let (_, key) = next.sign_pem("localhost", FAR);
    mounted.put([&certificate, &key, &next.certificate]);
    until(BOUND, "the log names the fault", || {
        process.log().contains("is not the key of the certificate").then_some(())
    });
    assert!(is_accepted(&of_first), "the earlier one stays in use");
    mounted.replace(&next, FAR);
    until(BOUND, "the new one is used", || is_accepted(&of_next).then_some(()));
    assert!(!is_accepted(&of_first));
    assert!(process.log().contains("valid until 2100-12-31"), "{}", process.log());
    assert!(!watch.has_ended() && watch.log().is_empty(), "{}", watch.log());
    mounted.replace(&next, 2_001);
    until(BOUND, "the log says that the certificate has expired", || {
        process.log().contains("expired on 2001-12-31").then_some(())
    });
}

#[test]
fn wrong_files_of_the_listener_exit_with_2_and_a_remedy() {
    let mounted = Mounted::new(&Authority::new("ours"), FAR);
    let [cert, key] = ["tls.crt", "tls.key"].map(|it| shown(&mounted.path(it)));
    let both = ["--tls-cert", &cert, "--tls-key", &key];
    let run =
        |arguments: &[&str]| run_verb(&[&["run", "--store", "memory:"], arguments].concat(), &[]);
    let remote = ["--listen", "0.0.0.0:0"];
    for (arguments, words) in [
        (both.to_vec(), ["tls-cert = ", "would not be used", "--listen [::]:4443"]),
        ([&remote[..], &both[..2]].concat(), ["tls-cert = ", "tls-key is not", "set --tls-key"]),
        (
            [&remote[..], &both[..], &["--tls-client-ca", "/none"]].concat(),
            ["tls-client-ca = \"/none\" (flag --tls-client-ca)", "cannot be read", "name a file"],
        ),
    ] {
        let ran = run(&arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{arguments:?}: {word} in {}", ran.err);
        }
    }
    let doctor = ["doctor", "--store", "memory:", "--listen", "0.0.0.0:0"];
    let ran = run_verb(&[&doctor[..], &both].concat(), &[]);
    assert!(ran.out.contains("valid until 2100-12-31"), "{}\n{}", ran.out, ran.err);
}
