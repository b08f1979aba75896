//! The checks of `tenure doctor` for a `file:` store. They change nothing but a probe file.

use super::super::{Finding, Verdict};
use super::attempt::Attempt;
use super::directory::Directory;
use super::fault::FileError;
use super::record::{Reading, Stored};
use crate::lease::StoreError;

/// Checks from the directory to the record, and stops where nothing further can be checked.
pub(super) fn examine(attempt: &Attempt) -> Vec<Finding> {
    let place = &attempt.place;
    let path = place.directory().display();
    let directory = match place.open_unchecked() {
        Ok(Some(directory)) => directory,
        Ok(None) => {
            return vec![Finding {
                subject: "directory".into(),
                verdict: Verdict::Warning,
                detail: format!("{path} does not exist; the first bid creates it"),
                remedy: Some("`tenure doctor --create` creates it now".to_owned()),
            }];
        }
        Err(fault) => return vec![failed("directory", fault)],
    };
    let mut findings = vec![passed("directory", path.to_string())];
    findings.push(match directory.check_filesystem() {
        Ok(name) => passed("filesystem", format!("{name}, a local filesystem")),
        Err(fault) => failed("filesystem", fault),
    });
    findings.push(match directory.check_owner() {
        Ok(()) => passed("owner", "no other user can replace the files".into()),
        Err(fault) => failed("owner", fault),
    });
    if findings.iter().any(|finding| finding.verdict == Verdict::Failed) {
        for subject in ["writing", "lock", "record"] {
            findings.push(Finding {
                subject: subject.into(),
                verdict: Verdict::Skipped,
                detail: "not checked, because of the directory".into(),
                remedy: None,
            });
        }
        return findings;
    }
    findings.push(match directory.probe() {
        Ok(()) => passed("writing", "wrote a file".into()),
        Err(fault) => failed("writing", fault),
    });
    findings.push(match attempt.take_lock(&directory) {
        Ok(_) => passed("lock", format!("locked {}", place.lock_path().display())),
        Err(fault) if fault.is_transient() => {
            Finding { verdict: Verdict::Warning, ..failed("lock", fault) }
        }
        Err(fault) => failed("lock", fault),
    });
    findings.push(record(attempt, &directory));
    findings
}

/// Returns the finding for a disk that does not answer.
pub(super) fn hung(error: &StoreError) -> Finding {
    Finding {
        subject: "directory".into(),
        verdict: Verdict::Failed,
        detail: error.to_string(),
        remedy: Some("check whether the disk hangs".to_owned()),
    }
}

fn record(attempt: &Attempt, directory: &Directory<'_>) -> Finding {
    let read = attempt.boot_id().and_then(|boot_id| {
        Ok(directory.read()?.map(|stored| describe(&stored, &attempt.reading(boot_id))))
    });
    let path = attempt.place.record_path();
    match read {
        Ok(Some(words)) => passed("record", words),
        Ok(None) => passed("record", format!("{} does not exist yet", path.display())),
        Err(fault) => failed("record", fault),
    }
}

fn describe(stored: &Stored, now: &Reading) -> String {
    let record = stored.record();
    let term = record.term.map_or("no term yet".to_owned(), |term| format!("term {term}"));
    let lease = match stored.remaining(now) {
        Some(left) if !left.is_zero() => format!("held for {:.1} s more", left.as_secs_f64()),
        Some(_) => "free, since it expired".to_owned(),
        None => "free".to_owned(),
    };
    match record.holder {
        Some(holder) => format!("{term}, last led by {}; the lease is {lease}", holder.identity),
        None => format!("{term}; the lease is {lease}"),
    }
}

fn passed(subject: &'static str, detail: String) -> Finding {
    Finding { subject: subject.into(), verdict: Verdict::Passed, detail, remedy: None }
}

fn failed(subject: &'static str, fault: FileError) -> Finding {
    let (detail, remedy) = (fault.detail, fault.remedy);
    Finding { subject: subject.into(), verdict: Verdict::Failed, detail, remedy }
}
