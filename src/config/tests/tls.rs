//! Tests of the settings of TLS.

use super::*;
use crate::tls::testing;

/// A certificate, its key and its authority in unnamed files, which are deleted when the process
/// ends.
pub(super) static FILES: LazyLock<[String; 3]> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let (own, ca) = testing::write(directory.path(), "a", 2_100);
    [own.cert, own.key, ca].map(|path| {
        let file = std::fs::File::open(path).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::mem::forget(file);
        path
    })
});

const REMOTE: (&str, &[&str]) = ("listen", &["127.0.0.1:4040", "0.0.0.0:4443"]);

const LOCAL: &[&str] = &["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:2", "unix:/tmp/s"];

/// Returns setting, problem and remedy of each fault.
fn faults(flags: &[(&'static str, &[&str])]) -> Vec<(String, String, String)> {
    let faults = loaded(flags, &[]).err().map(|it| it.0).unwrap_or_default();
    faults.into_iter().map(|it| (it.setting, it.problem, it.remedy)).collect()
}

#[test]
fn a_file_without_the_one_that_belongs_to_it_is_a_fault_of_the_file() {
    let [cert, key, ca] = FILES.each_ref().map(String::as_str);
    for (name, path, missing) in [
        ("tls-cert", cert, "tls-key"),
        ("tls-key", key, "tls-cert"),
        ("tls-client-ca", ca, "tls-cert"),
    ] {
        let found = faults(&[REMOTE, (name, &[path])]);
        let [(setting, problem, remedy)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(setting, name);
        assert!(problem.contains(&format!("{missing} is not [{missing}: default]")), "{problem}");
        assert!(remedy.contains(&format!("--{missing}")), "{remedy}");
    }
}

#[test]
fn files_that_cannot_be_used_are_faults_of_their_settings() {
    let [cert, key, ca] = FILES.each_ref().map(String::as_str);
    let none: &[&str] = &["/nonexistent/pem"];
    let found = faults(&[REMOTE, ("tls-cert", none), ("tls-key", none), ("tls-client-ca", none)]);
    let names: Vec<&str> = found.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["tls-cert", "tls-key", "tls-client-ca"]);
    assert!(
        found.iter().all(|it| it.1 == "cannot be read: no such file or directory"),
        "{found:?}"
    );
    let directory = tempfile::tempdir().unwrap();
    let (other, _) = testing::write(directory.path(), "b", 2_100);
    let other = other.key.display().to_string();
    for (tls, setting, words) in [
        ([cert, &other, ca], "tls-key", "is not the key of the certificate"),
        ([key, key, ca], "tls-cert", "no valid certificate"),
        ([cert, cert, ca], "tls-key", "no private key"),
        ([cert, key, key], "tls-client-ca", "no certificate"),
    ] {
        let [cert, key, ca] = tls;
        let flags: &[(&'static str, &[&str])] =
            &[REMOTE, ("tls-cert", &[cert]), ("tls-key", &[key]), ("tls-client-ca", &[ca])];
        let found = faults(flags);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].0 == setting && found[0].1.contains(words), "{found:?}");
    }
}

#[test]
fn tls_that_no_address_would_have_is_a_fault_of_a_start_alone() {
    let [cert, key, _] = FILES.each_ref().map(String::as_str);
    let with = |listen: &'static [&'static str]| {
        let flags: [(&'static str, &[&str]); 3] =
            [("listen", listen), ("tls-cert", &[cert]), ("tls-key", &[key])];
        flags.map(|(name, values)| (name, values.iter().map(|&it| it.to_owned()).collect()))
    };
    for listen in [&["off"][..], LOCAL] {
        let (flags, environment) = (Flags::from(with(listen)), Environment::of(POD));
        let text = load(&flags, &environment, Verb::Run).unwrap_err().to_string();
        for words in ["tls-cert = ", "would not be used", "listen: flag --listen", "[::]:4443"] {
            assert!(text.contains(words), "{words} in {text}");
        }
        // The commands of a pod have its variables, but not its arguments.
        assert!(load_to_examine(&flags, &environment, Verb::Run).is_ok());
    }
    let flags = Flags::from(with(&["127.0.0.1:1", "[::]:2"]));
    let settings = load(&flags, &Environment::of(POD), Verb::Run).unwrap().settings;
    let encrypted: Vec<bool> = settings.listen.iter().map(Listen::is_remote).collect();
    assert_eq!(encrypted, [false, true]);
}

#[test]
fn a_certificate_that_is_not_valid_now_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let (own, _) = testing::write(directory.path(), "old", 2_001);
    let [cert, key] = [own.cert, own.key].map(|it| vec![it.display().to_string()]);
    let listen = vec!["0.0.0.0:4443".to_owned()];
    let flags = Flags::from([("tls-cert", cert), ("tls-key", key), ("listen", listen)]);
    let found = load(&flags, &Environment::of(POD), Verb::Run).unwrap().warnings;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].subject, "tls-cert");
    assert!(found[0].problem.contains("old.crt expired on 2001-12-31"), "{found:?}");
}
