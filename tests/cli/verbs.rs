//! The command line from the user's view: exit codes, messages, help, `tenure watch`, and what becomes of
//! output that cannot be written.

use testkit::processes::{process, sidecar};

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

use process::{BOUND, Process, Ran, run_verb, verb};
use sidecar::Sidecar;

// --- settings ---

#[test]
fn fault_36_each_kind_of_invalid_setting_exits_with_2_and_a_remedy() {
    let cases: &[Case<'_>] = &[
        (&["--election", "A B"], &[], &["election = \"A B\" (flag --election)", "such as a-b"]),
        (&["--identity", "ä"], &[], &["identity", "printable ASCII"]),
        (&[], &[("POD_NAME", "ä")], &["variable POD_NAME", "--identity"]),
        (&["--advertise", "a b"], &[], &["advertise", "has a space"]),
        (&["--observe=maybe"], &[], &["observe", "true or false"]),
        (&["--store", "mysql://h"], &[], &["store", "azure://ACCOUNT/CONTAINER"]),
        (
            &[],
            &[("KUBERNETES_SERVICE_HOST", "h")],
            &["store (default)", "lead on its own", "kubernetes:orders"],
        ),
        (&["--store", "kubernetes:a/orders"], &[], &["not a pod", "--kube-api https://HOST"]),
        (&["--store", "kubernetes:a/B"], &[], &["the Lease \"B\"", "such as b"]),
        (&["--lease-duration", "15"], &[], &["no unit", "write 15s"]),
        (&["--renew-deadline", "5s"], &[], &["2 × 2s + 2s = 6s", "from 6s to 13.5s"]),
        (&["--renew-deadline", "20s"], &[], &["not shorter than lease-duration, 15s"]),
        (&["--store", "azure://acct/box", "--lease-duration", "2m"], &[], &["15s to 60s"]),
        (
            &["--store", "azure://acct/box", "--azure-endpoint", "http://far.test/acct"],
            &[],
            &["azure-endpoint", "--azure-insecure-http"],
        ),
        (
            &["--store", "azure://acct/box"],
            &[("AZURE_STORAGE_KEY", "hidden"), ("AZURE_STORAGE_KEY_FILE", "/x")],
            &["set twice", "unset one"],
        ),
        (&["--listen", "4040"], &[], &["listen = \"4040\"", "write 127.0.0.1:4040"]),
        (&["--max-connections", "0"], &[], &["max-connections", "65535"]),
        (&["--status-file", "/x.txt"], &[], &["status-file", ".env"]),
        (&["--log-format", "xml"], &[], &["log-format", "text or json"]),
        (&["--log-level", "inof"], &[], &["log-level", "not a level"]),
        (&["--config", "/nonexistent.toml"], &[], &["config", "cannot be read"]),
        (&["--config", "/dev/null"], &[], &["config", ".toml, .yaml or .yml"]),
    ];
    each_is_a_fault(cases);
}

/// Flags, variables and words of the message.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

fn each_is_a_fault(cases: &[Case]) {
    for (arguments, variables, words) in cases {
        let arguments: Vec<_> = ["run"].iter().chain(*arguments).copied().collect();
        let ran = run_verb(&arguments, variables);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("one setting is wrong, so nothing was started"), "{}", ran.err);
        assert!(ran.err.contains("remedy: "), "{}", ran.err);
        for word in *words {
            assert!(ran.err.contains(word), "{word} in {}", ran.err);
        }
        assert!(ran.out.is_empty() && !ran.err.contains("hidden"), "{}{}", ran.out, ran.err);
    }
}

#[test]
fn fault_36_a_secret_of_azure_that_can_never_work_exits_with_2_and_names_its_part() {
    each_is_a_fault(&[
        (
            &["--store", "azure://acct/box"],
            &[("AZURE_STORAGE_KEY", "hidden*")],
            &["AZURE_STORAGE_KEY (variable AZURE_STORAGE_KEY)", "is not valid base64", "copy the"],
        ),
        (
            &["--store", "azure://acct/box"],
            &[("AZURE_STORAGE_CONNECTION_STRING", "AcountName=acct;AccountKey=hiddenhidden")],
            &["has a part AcountName", "did you mean AccountName?"],
        ),
        (
            &["--store", "azure://acct/box"],
            &[(
                "AZURE_STORAGE_CONNECTION_STRING",
                "BlobEndpoint=https://other.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=hidden",
            )],
            &["is for the account other, but --store names acct"],
        ),
        (
            &["--store", "azure://devstoreaccount1/box"],
            &[(
                "AZURE_STORAGE_CONNECTION_STRING",
                "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
            )],
            &[
                "http://azurite:10000/devstoreaccount1, which is plain http",
                "--azure-insecure-http",
            ],
        ),
        (
            &[
                "--store",
                "azure://acct/box",
                "--azure-endpoint",
                "https://acct.queue.core.windows.net",
            ],
            &[("AZURE_STORAGE_KEY", "hiddenhidden")],
            &["azure-endpoint = ", "queues, not of blobs", "https://acct.blob.core.windows.net"],
        ),
        (
            &[
                "--store",
                "azure://acct/box",
                "--azure-endpoint",
                "http://far.test/acct",
                "--azure-insecure-http",
                "true",
            ],
            &[],
            &["azure-endpoint = ", "a token is never sent over it"],
        ),
    ]);
}

#[test]
fn fault_36_several_faults_come_in_one_message_and_nothing_is_started() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tenure.yaml");
    std::fs::write(&file, "retry-period: soon\nelecton: orders\n").unwrap();
    let file = file.to_str().unwrap();
    let [socket, status, lease] =
        ["socket", "status.json", "lease"].map(|it| directory.path().join(it));
    let (listen, store) =
        (format!("unix:{}", socket.display()), format!("file://{}", lease.display()));
    let ran = run_verb(
        &[
            "run",
            "--election",
            "Orders",
            "--config",
            file,
            "--listen",
            &listen,
            "--status-file",
            status.to_str().unwrap(),
            "--store",
            &store,
        ],
        &[("TENURE_MAX_CONNECTIONS", "many"), ("TENURE_PORT", "tcp://10.0.0.1:80")],
    );
    assert_eq!(ran.code, 2);
    for words in [
        "4 settings are wrong, so nothing was started",
        "election = \"Orders\" (flag --election)",
        "max-connections = \"many\" (variable TENURE_MAX_CONNECTIONS)",
        &format!("retry-period = \"soon\" (file {file})"),
        "remedy: did you mean election?",
    ] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    assert!(!ran.err.contains("TENURE_PORT"), "an unknown variable is no fault");
    for made in [socket, status, lease] {
        assert!(!made.exists(), "{} was made", made.display());
    }
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    let ran = run_verb(&["run", "--lease-durations", "1s"], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--lease-duration"), "clap suggests: {}", ran.err);
    assert_eq!(run_verb(&[], &[]).code, 2);
    assert_eq!(run_verb(&["ruin"], &[]).code, 2);
    assert_eq!(run_verb(&["wait"], &[]).code, 2);
    assert_eq!(run_verb(&["wait", "--for", "ever"], &[]).code, 2);
    assert_eq!(run_verb(&["wait", "--for", "active", "--timeout", "5"], &[]).code, 2);
    assert_eq!(run_verb(&["check", "--url", "http://x", "--file", "x"], &[]).code, 2);
    assert_eq!(run_verb(&["doctor", "--yes"], &[]).code, 2, "--yes is for --create");
    assert_eq!(run_verb(&["--help"], &[]).code, 0);
    let version = run_verb(&["--version"], &[]);
    assert_eq!(version.code, 0);
    assert!(version.out.contains("\nstores: azure, consul, etcd, file,"), "{}", version.out);
}

#[test]
fn an_unknown_verb_or_argument_comes_with_what_was_most_likely_meant() {
    for (arguments, words) in [
        (&["list"][..], "did you mean 'tenure status'?"),
        (&["lock"], "did you mean 'tenure exec'?"),
        (&["failover"], "did you mean 'tenure step-down'?"),
        (&["staus"], "did you mean 'tenure status'?"),
        (&["help"], "did you mean 'tenure --help'?"),
        (&["transfer", "base2"], "did you mean '--to base2'?"),
    ] {
        let ran = run_verb(arguments, &[]);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
        assert!(!ran.err.contains("install"), "{arguments:?}: {}", ran.err);
    }
    let ran = run_verb(&["frobnicate"], &[]);
    assert!(ran.code == 2 && !ran.err.contains("did you mean"), "{}", ran.err);
}

#[test]
fn the_help_groups_its_settings_and_ends_with_examples() {
    let run = run_verb(&["run", "--help"], &[]).out;
    let (settings, examples) = run.split_once("Examples:").expect("examples come last");
    for heading in
        ["Election:", "Store:", "Kubernetes:", "Timings:", "Status:", "Logs:", "Settings file:"]
    {
        assert!(settings.contains(heading), "{heading}");
    }
    for example in ["orders --store azure://", "orders --store kubernetes:orders"] {
        assert!(examples.contains(&format!("tenure run --election {example}")), "{examples}");
    }
    for verb in
        ["status", "check", "wait", "watch", "doctor", "break", "migrate", "install", "completions"]
    {
        let help = run_verb(&[verb, "--help"], &[]).out;
        assert!(help.contains(&format!("Examples:\n  tenure {verb}")), "{verb}: {help}");
    }
    let top = run_verb(&["--help"], &[]).out;
    assert!(top.contains("Examples:") && top.contains("Exit codes:"), "{top}");
}

#[test]
fn doctor_reports_all_invalid_settings_and_exits_with_1() {
    let ran = run_verb(&["doctor", "--election", "A", "--listen", "x"], &[]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in ["WRONG   election", "WRONG   listen", "skipped store", "→ write a name such as a"]
    {
        assert!(ran.out.contains(words), "{words} in {}", ran.out);
    }
}

#[test]
fn doctor_creates_a_missing_record_only_if_confirmed_that_no_leader_is_alive() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    let doctor = |more: &[&str]| {
        let arguments = ["doctor", "--store", &store, "--create"];
        run_verb(&arguments.iter().chain(more).copied().collect::<Vec<_>>(), &[])
    };
    let ran = doctor(&[]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("confirm with --yes"), "{}", ran.err);
    let made = |ran: &Ran| ran.out.contains("create") && !ran.out.contains("nothing was missing");
    assert!(!made(&ran));

    let ran = doctor(&["--yes"]);
    assert!(ran.code == 0 && made(&ran), "{}{}", ran.out, ran.err);
    let ran = doctor(&["--yes"]);
    assert!(ran.code == 0 && !made(&ran), "there is nothing to make twice: {}", ran.out);
}

#[test]
fn completions_are_scripts_that_their_shells_can_parse() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let ran = run_verb(&["completions", shell], &[]);
        assert_eq!(ran.code, 0);
        for word in ["lease-duration", "kube-route", "install"] {
            assert!(ran.out.contains(word), "{shell} knows {word}");
        }
        let script = directory.path().join(shell);
        std::fs::write(&script, &ran.out).unwrap();
        let status = Command::new(shell).arg("-n").arg(&script).status();
        let status = status.unwrap_or_else(|error| panic!("install the package {shell}: {error}"));
        assert!(status.success(), "{shell}");
    }
}

// --- watch ---

fn term_and_index(line: &str) -> (Option<u64>, u64) {
    let it: serde_json::Value = serde_json::from_str(line).unwrap();
    (it["term"].as_u64(), it["index"].as_u64().unwrap())
}

#[test]
fn watch_prints_each_change_once_and_reconnects() {
    let sidecar = Sidecar::start();
    let address = sidecar.address;
    let mut watching = Process::verb(&["watch", "--url", &sidecar.url()], &[]);
    let mut line = |number| term_and_index(&watching.line(number, BOUND).unwrap());
    assert_eq!(line(0), (None, 1));
    sidecar.report("active", "leader", Some(42), 60_000);
    assert_eq!(line(1), (Some(42), 2));
    // The sidecar keeps sending the same status: no change, no line.
    std::thread::sleep(Duration::from_millis(300));
    drop(sidecar);
    let sidecar = Sidecar::start_at(address);
    assert_eq!(line(2), (None, 1), "the next sidecar");
    sidecar.report("active", "leader", Some(43), 60_000);
    assert_eq!(line(3), (Some(43), 2));
}

#[test]
fn watch_ends_quietly_when_its_output_is_closed() {
    let sidecar = Sidecar::start();
    let (out, into) = std::io::pipe().unwrap();
    let command = verb(&["watch", "--url", &sidecar.url()], &[]);
    let watching = Process::spawn_to("watch", command, Some(into.into()), None);
    let mut out = BufReader::new(out);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    drop(out);
    // No change occurs that it could fail to write.
    let ran = watching.end();
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// The arguments of every verb that prints, with those that it needs to succeed.
fn verbs_that_print<'a>(url: &'a str, store: &'a str, target: &'a str) -> Vec<Vec<&'a str>> {
    vec![
        vec!["status", "--url", url],
        vec!["status", "--json", "--url", url],
        vec!["check", "--url", url],
        vec!["watch", "--url", url],
        vec!["doctor", "--store", store],
        vec!["break", "--store", store],
        vec!["install", target],
        vec!["completions", "bash"],
        vec!["--help"],
        vec!["run", "--help"],
        vec!["--version"],
    ]
}

#[test]
fn a_full_output_is_an_error_and_a_closed_pipe_is_not() {
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    let directory = tempfile::tempdir().unwrap();
    let lease = directory.path().join("lease");
    std::fs::create_dir(&lease).unwrap();
    let store = format!("file://{}", lease.display());
    let made = run_verb(&["doctor", "--store", &store, "--create", "--yes"], &[]);
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    let (url, target) = (sidecar.url(), directory.path().to_str().unwrap());
    for arguments in verbs_that_print(&url, &store, target) {
        let (out, into) = std::io::pipe().unwrap();
        let running = Process::spawn_to("tenure", verb(&arguments, &[]), Some(into.into()), None);
        drop(out);
        let ran = running.end();
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
        assert!(!ran.err.contains("standard output"), "{arguments:?}: {}", ran.err);

        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let running = Process::spawn_to("tenure", verb(&arguments, &[]), Some(full.into()), None);
        let ran = running.end();
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.err);
        assert!(
            ran.err.contains("cannot write to standard output: No space left"),
            "{arguments:?}: {}",
            ran.err
        );
    }
}
