//! The page at `/` of real sidecars, in a real browser.

use testkit::processes::process;
use testkit::tools::chromium;

use chromium::{Chromium, keep};
use process::Process;

#[tokio::test]
async fn a_sidecar_of_any_name_shows_its_identity_and_first_transition() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().join("lease").display());
    let name = r#"<img src=x onerror="window.bad=1">&'x"#;
    let candidate = Process::run(name, &["--store", &store], &[]);
    let mut chromium = Chromium::start().await;
    chromium.open(&format!("http://{}/", candidate.address)).await;
    chromium.until("document.body.innerText.includes('This instance is the leader.')").await;
    assert_eq!(chromium.value("document.querySelector('h1').textContent").await, name);
    assert_eq!(chromium.value("window.bad === undefined").await, true);
    let states = "[...document.querySelectorAll('td b')].map(it => it.textContent).join()";
    assert_eq!(chromium.value(states).await, "leader,activating,standby");
    assert_eq!(chromium.complaints, Vec::<String>::new());
}

#[tokio::test]
async fn probe_results_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("well"), "").unwrap();
    let arguments = [
        "--store".to_owned(),
        format!("file://{}", path("lease")),
        format!("--health=file:{}", path("well")),
        format!("--health=file:{}", path("missing")),
    ];
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let candidate = Process::run("it", &arguments, &[]);
    let mut chromium = Chromium::start().await;
    chromium.emulate(1_100, 800, "light").await;
    chromium.open(&format!("http://{}/", candidate.address)).await;
    chromium.until("document.body.innerText.includes('is unhealthy and does not compete')").await;
    chromium.until("document.body.innerText.includes('Unhealthy')").await;
    chromium.until("/missing.* failed: /.test(document.body.innerText)").await;
    let well = "/succeeded: exists, [0-9.]+s ago/.test(document.body.innerText)";
    assert_eq!(chromium.value(well).await, true);
    keep("health", &chromium.picture().await);
    assert_eq!(chromium.complaints, Vec::<String>::new());
}
