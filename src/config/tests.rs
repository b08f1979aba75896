//! Tests of the settings as a whole: precedence, collected faults, rules between settings.

use std::os::fd::AsRawFd;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

mod kubernetes;
mod relations;
mod service;
mod tls;

/// The variables that a route needs, outside of a cluster.
const POD: [(&str, &str); 2] = [("POD_NAME", "pod"), ("POD_NAMESPACE", "prod")];

fn loaded(
    flags: &[(&'static str, &[&str])],
    variables: &[(&str, &str)],
) -> Result<Settings, Faults> {
    loaded_for(Verb::Run, flags, variables)
}

fn loaded_for(
    verb: Verb,
    flags: &[(&'static str, &[&str])],
    variables: &[(&str, &str)],
) -> Result<Settings, Faults> {
    let flags = flags
        .iter()
        .map(|(name, values)| (*name, values.iter().map(|&it| it.to_owned()).collect()))
        .collect();
    // A token would not be sent to the endpoint in plain http.
    let key = [("AZURE_STORAGE_KEY", "a2V5")];
    let variables = POD.iter().chain(&key).chain(variables).copied();
    load(&flags, &Environment::of(variables), verb).map(|it| it.settings)
}

fn of_file(ending: &str, text: &str) -> Result<Settings, Faults> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(format!("settings.{ending}"));
    std::fs::write(&path, text).unwrap();
    loaded(&[("config", &[path.to_str().unwrap()])], &[])
}

/// A token in an unnamed file, which is deleted when the process ends.
static TOKEN_FILE: LazyLock<String> = LazyLock::new(|| {
    let file = tempfile::tempfile().unwrap();
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::io::Write::write_all(&mut &file, b"0123456789abcdef\n").unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::mem::forget(file);
    path
});

/// For each setting a valid value that is not its default; all are valid together.
static SAMPLES: LazyLock<[(&str, &[&str]); 63]> = LazyLock::new(|| {
    let one = |path: &'static String| -> &'static [&'static str] { vec![path.as_str()].leak() };
    let token_file = one(&TOKEN_FILE);
    let [cert, key, client_ca] = tls::FILES.each_ref().map(one);
    [
        ("election", &["orders"]),
        ("identity", &["me"]),
        ("advertise", &["10.0.0.1:80"]),
        ("observe", &["true"]),
        ("store", &["azure://acct/box"]),
        ("store-ca-file", &["/store-ca.crt"]),
        ("store-cert", &["/store.crt"]),
        ("store-key", &["/store.key"]),
        ("store-insecure", &["true"]),
        ("mongodb-collection", &["leases"]),
        ("mongodb-auth-source", &["admin"]),
        ("mongodb-compatible", &["true"]),
        ("postgres-table", &["ops.tenure"]),
        ("s3-endpoint", &["https://minio.test:9000"]),
        ("s3-region", &["eu-west-1"]),
        ("s3-path-style", &["true"]),
        ("azure-endpoint", &["http://azurite.test/acct"]),
        ("azure-blob-prefix", &["a/b"]),
        ("azure-insecure-http", &["true"]),
        ("kube-api", &["https://api.test:6443"]),
        ("kube-token-file", &["/token"]),
        ("kube-ca-file", &["/ca.crt"]),
        ("kube-route", &["endpointslice"]),
        ("kube-label", &["example.org/role"]),
        ("kube-service", &["orders"]),
        ("lease-duration", &["30s"]),
        ("renew-deadline", &["20s"]),
        ("retry-period", &["3s"]),
        ("request-timeout", &["4s"]),
        ("activation-delay", &["1s"]),
        ("listen", &["127.0.0.1:1", "0.0.0.0:3", "unix:/tmp/s"]),
        ("max-connections", &["7"]),
        ("max-connections-per-peer", &["5"]),
        ("allowed-hosts", &["tenure.internal"]),
        ("agent-check", &["127.0.0.1:7"]),
        ("tls-cert", cert),
        ("tls-key", key),
        ("tls-client-ca", client_ca),
        ("status-file", &["/tmp/a.json", "/tmp/b.env"]),
        ("admin", &["127.0.0.1:2"]),
        ("admin-token-file", token_file),
        ("pass-credentials", &["true"]),
        (
            "health",
            &[
                "http://127.0.0.1:1/health?a",
                "tcp://[::1]:2",
                "file:/a%20b?max_age=1m",
                "exec:sh -c 'a, b'",
            ],
        ),
        ("health-interval", &["3s"]),
        ("health-timeout", &["2s"]),
        ("health-failures", &["4"]),
        ("health-successes", &["5"]),
        ("scheduled-events", &["azure"]),
        ("peers", &["true"]),
        ("peer-address", &["10.0.0.1:4040"]),
        ("peer-ca", client_ca),
        ("priority", &["60"]),
        ("zone", &["a"]),
        ("preempt-after", &["30s"]),
        ("drain-timeout", &["6s"]),
        ("stop-timeout", &["2s"]),
        ("on-active", &["true"]),
        ("on-passive", &["/bin/sh -c 'a b'"]),
        ("on-drain", &["http://127.0.0.1:1/drain"]),
        ("on-leader-change", &["https://hooks.test/x"]),
        ("hook-timeout", &["5s"]),
        ("log-format", &["text"]),
        ("log-level", &["debug"]),
    ]
});

fn text(settings: &Settings) -> String {
    format!("{settings:?}")
}

#[test]
fn without_settings_the_defaults_are_the_documented_ones() {
    let place = tempfile::tempdir().unwrap();
    let mut environment = Environment::of([("XDG_RUNTIME_DIR", "/run/user/1")]);
    environment.var_tmp = place.path().to_owned();
    let loaded = load(&Flags::new(), &environment, Verb::Run).unwrap();
    assert!(loaded.is_default_store);
    let settings = loaded.settings;
    let directory = place.path().join("tenure-1000");
    assert_eq!(
        settings.summary(),
        format!(
            "election=default identity=\"host\" advertise=none store=file://{}/default.lock kube-api=none \
             kube-route=none lease-duration=15s renew-deadline=10s retry-period=2s \
             request-timeout=2s activation-delay=0s observe=false listen=127.0.0.1:4040 \
             agent-check=none tls-cert=none status-file=none admin=none health=none \
             scheduled-events=none peers=off priority=50 drain-timeout=0s hooks=none",
            directory.display()
        )
    );
    assert_eq!(settings.max_connections, 512);
    assert_eq!((settings.log_format, settings.log_level.as_str()), (LogFormat::Json, "info"));
    assert!(matches!(settings.store, StoreSettings::File(FileSettings { is_private: true, .. })));
}

#[test]
fn every_setting_has_a_sample_here() {
    let samples: Vec<_> = SAMPLES.iter().map(|it| it.0).chain(["config"]).collect();
    let settings: Vec<_> = SETTINGS.iter().map(|it| it.name).collect();
    assert_eq!(samples, settings);
}

#[test]
fn every_setting_means_the_same_as_flag_variable_and_key() {
    let flags = loaded(&*SAMPLES, &[]).unwrap();
    let variables: Vec<_> = SETTINGS
        .iter()
        .zip(*SAMPLES)
        .map(|(setting, (_, values))| (setting.variable(), values.join(",")))
        .collect();
    let variables: Vec<_> = variables.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let list = |values: &[&str]| match values {
        [one] => format!("{one:?}"),
        many => format!("{many:?}"),
    };
    let toml: String =
        SAMPLES.iter().map(|(name, values)| format!("{name} = {}\n", list(values))).collect();
    let yaml: String =
        SAMPLES.iter().map(|(name, values)| format!("{name}: {}\n", list(values))).collect();

    let flags = text(&flags);
    assert_eq!(text(&loaded(&[], &variables).unwrap()), flags);
    assert_eq!(text(&of_file("toml", &toml).unwrap()), flags);
    assert_eq!(text(&of_file("yaml", &yaml).unwrap()), flags);
    assert_eq!(text(&of_file("yml", &yaml).unwrap()), flags);
}

#[test]
fn every_setting_changes_something() {
    let all = loaded(&*SAMPLES, &[]).map(|it| text(&it));
    // The label belongs to the other kind of route, and the files and the table to other stores.
    let is_of_others = |name: &str| {
        ["kube-label", "postgres-table"].contains(&name)
            || name.starts_with("store-")
            || name.starts_with("mongodb-")
            || name.starts_with("s3-")
    };
    for (name, _) in SAMPLES.iter().filter(|it| !is_of_others(it.0)) {
        let name = *name;
        let others: Vec<_> = SAMPLES.iter().copied().filter(|it| it.0 != name).collect();
        assert_ne!(loaded(&others, &[]).map(|it| text(&it)), all, "{name}");
    }
}

#[test]
fn values_that_yaml_and_toml_type_themselves_are_taken() {
    let settings =
        of_file("toml", "observe = true\nmax-connections = 9\nlisten = \"off\"").unwrap();
    assert!(settings.observe && settings.max_connections == 9 && settings.listen.is_empty());
    let settings = of_file("yaml", "observe: yes\nelection: 2026\nlisten: off").unwrap();
    assert!(settings.observe && settings.election == "2026" && settings.listen.is_empty());
}

#[test]
fn flag_beats_variable_beats_file_beats_default() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.toml");
    std::fs::write(&path, "election = \"file\"\nidentity = \"file\"\nadvertise = \"file\"")
        .unwrap();
    let path = path.to_str().unwrap();
    let flags: &[(&str, &[&str])] = &[("election", &["flag"])];
    let variables = [
        ("TENURE_CONFIG", path),
        ("TENURE_ELECTION", "variable"),
        ("TENURE_IDENTITY", "variable"),
        ("POD_NAME", "pod"),
    ];
    let it = loaded(flags, &variables).unwrap();
    let found = (it.election.as_str(), it.identity.as_str(), it.advertise.as_deref());
    assert_eq!(found, ("flag", "variable", Some("file")));
    assert_eq!(loaded(&[], &[("POD_NAME", "pod")]).unwrap().identity, "pod");
}

#[test]
fn a_flag_can_switch_off_what_a_variable_switched_on() {
    let it = loaded(&[("observe", &["false"])], &[("TENURE_OBSERVE", "1")]).unwrap();
    assert!(!it.observe);
}

#[test]
fn all_faults_of_all_sources_come_in_one_message() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.yaml");
    std::fs::write(&path, "retry-period: 2\nlisten: [here]\nelecton: x").unwrap();
    let path = path.to_str().unwrap();
    let flags: &[(&str, &[&str])] =
        &[("config", &[path]), ("election", &["A B"]), ("store", &["azur://a/b"])];
    let variables = [("TENURE_OBSERVE", "maybe"), ("TENURE_MAX_CONNECTIONS", "0")];
    let faults = loaded(flags, &variables).unwrap_err();
    let named: Vec<_> =
        faults.0.iter().map(|it| (it.setting.as_str(), it.source.to_string())).collect();
    let file = format!("file {path}");
    let expected = [
        ("electon", file.as_str()),
        ("election", "flag --election"),
        ("observe", "variable TENURE_OBSERVE"),
        ("retry-period", &file),
        ("store", "flag --store"),
        ("listen", &file),
        ("max-connections", "variable TENURE_MAX_CONNECTIONS"),
    ];
    let expected: Vec<_> = expected.map(|(name, source)| (name, source.to_owned())).into();
    assert_eq!(named, expected);
    assert!(faults.0.iter().all(|it| !it.remedy.is_empty() && !it.problem.is_empty()));
    assert!(faults.to_string().starts_with("7 settings are wrong"));
}

#[test]
fn an_empty_flag_or_key_is_a_fault_and_an_empty_variable_is_none() {
    for (name, _) in *SAMPLES {
        let variable = format!("TENURE_{}", name.to_uppercase().replace('-', "_"));
        assert!(loaded(&[], &[(&variable, "")]).is_ok(), "{name}");
        assert!(loaded(&[(name, &[""])], &[]).is_err(), "{name}");
        assert!(of_file("toml", &format!("{name} = \"\"")).is_err(), "{name}");
    }
}

#[test]
fn the_timing_rule_names_numbers_and_sources() {
    let faults = loaded(&[("renew-deadline", &["5s"])], &[("TENURE_RETRY_PERIOD", "3s")]);
    let text = faults.unwrap_err().to_string();
    for words in [
        "renew-deadline = \"5s\" (flag --renew-deadline)",
        "2 × 3s + 2s = 8s",
        "retry-period: variable TENURE_RETRY_PERIOD",
        "renew-deadline from 8s to 13.5s",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn azure_limits_the_lease_duration_and_other_stores_do_not() {
    let lease: &[(&str, &[&str])] =
        &[("store", &["azure://acct/box"]), ("lease-duration", &["90s"])];
    let text = loaded(lease, &[]).unwrap_err().to_string();
    assert!(text.contains("15s to 60s") && text.contains("lease-duration = \"90s\""), "{text}");
    assert!(loaded(&[("store", &["memory:"]), ("lease-duration", &["90s"])], &[]).is_ok());
}

#[test]
fn in_kubernetes_a_store_must_be_named() {
    let pod = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    let text = loaded(&[], &[pod]).unwrap_err().to_string();
    assert!(text.contains("each pod would lead on its own"), "{text}");
    for store in ["file:///dir", "memory:", "azure://acct/box"] {
        assert!(loaded(&[("store", &[store])], &[pod]).is_ok(), "{store}");
    }
}

#[test]
fn an_azure_store_is_built_from_its_settings() {
    let all: &[(&str, &[&str])] = &[
        ("store", &["azure://acct/box"]),
        ("election", &["orders"]),
        ("azure-blob-prefix", &["team/prod/"]),
    ];
    let variables = [("AZURE_STORAGE_KEY", "hiddenhidden"), ("HTTPS_PROXY", "http://p:1")];
    let settings = loaded(all, &variables).unwrap();
    let StoreSettings::Azure(azure) = &settings.store else { panic!("{settings:?}") };
    assert_eq!(azure.endpoint.as_str(), "https://acct.blob.core.windows.net/");
    assert_eq!(azure.blob, "team/prod/orders");
    assert_eq!(azure.proxy.as_deref(), Some("http://p:1"));
    assert_eq!(
        settings.store.to_string(),
        "https://acct.blob.core.windows.net/box/team/prod/orders"
    );
    assert!(!text(&settings).contains("hidden") && !settings.summary().contains("hidden"));
}

#[test]
fn no_fault_shows_a_secret_from_a_url() {
    for (name, value) in [
        ("store", "azure://acct/box?sig=hidden"),
        ("store", "postgres://me:hidden@host/db"),
        ("azure-endpoint", "https://me:hidden@host"),
        ("azure-endpoint", "https://host/?sig=hidden"),
    ] {
        let text = loaded(&[(name, &[value])], &[]).unwrap_err().to_string();
        assert!(!text.contains("hidden") && text.contains(name), "{text}");
    }
}

#[test]
fn a_settings_file_that_cannot_be_read_is_a_fault_of_config() {
    for (name, words) in
        [("/nonexistent.toml", "cannot be read"), ("/dev/null", "unknown extension")]
    {
        let faults = loaded(&[], &[("TENURE_CONFIG", name)]).unwrap_err();
        assert_eq!(faults.0.len(), 1);
        let text = faults.to_string();
        assert!(text.contains(words) && text.contains("variable TENURE_CONFIG"), "{text}");
    }
}

proptest! {
    #[test]
    fn the_strongest_layer_wins_for_every_setting(
        which in 0..SAMPLES.len(), flag: bool, variable: bool,
    ) {
        // The weaker layers hold invalid values, which must not matter.
        let (name, values) = SAMPLES[which];
        // Together with the others, since some samples are valid only then.
        let others: Vec<_> = SAMPLES.iter().copied().filter(|it| it.0 != name).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        let list = format!("{values:?}");
        let good = if values.len() == 1 { format!("{:?}", values[0]) } else { list };
        let weaker = flag || variable;
        let word = if weaker { "\"\"" } else { good.as_str() };
        std::fs::write(&path, format!("{name} = {word}")).unwrap();
        let path = [path.to_str().unwrap()];
        let mut flags = others;
        flags.push(("config", &path));
        if flag {
            flags.push((name, values));
        }
        let joined = if flag { "\u{1}".to_owned() } else { values.join(",") };
        let env_name = SETTINGS[which].variable();
        let mut variables = Vec::new();
        if variable {
            variables.push((env_name.as_str(), joined.as_str()));
        }
        let found = loaded(&flags, &variables).map(|it| text(&it));
        prop_assert_eq!(found, Ok(text(&loaded(&*SAMPLES, &[]).unwrap())));
    }

    #[test]
    fn no_value_of_any_layer_panics(
        which in 0..SAMPLES.len(), text in ".{0,40}", more in ".{0,40}",
    ) {
        let (name, _) = SAMPLES[which];
        let _ = loaded(&[(name, &[&text, &more])], &[]);
        let _ = loaded(&[], &[(&SETTINGS[which].variable(), &text)]);
    }
}
