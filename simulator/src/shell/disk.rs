//! The disk of a machine, with the status files of its candidate. It outlives the process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tenure::status::document::Document;

use super::ROUTE;

/// A disk; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Disk(Rc<RefCell<Files>>);

/// The files, as a reader of the machine understands them.
#[derive(Debug, Default)]
pub struct Files {
    readers: BTreeMap<PathBuf, Option<Reader>>,
    full: bool,
}

/// What a file tells a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The term in which this machine's candidate is active.
    pub term: u64,
    /// The reading of the boot clock until which that is valid.
    pub until_boot_ns: u64,
}

impl Disk {
    /// Replaces a file; fails while the disk is full.
    pub fn replace(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut files = self.0.borrow_mut();
        if files.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        files.readers.insert(path.to_owned(), read(path, text));
        Ok(())
    }

    /// Removes a file.
    pub fn remove(&self, path: &Path) {
        self.0.borrow_mut().readers.remove(path);
    }

    /// Makes the disk full, or no longer.
    pub fn set_full(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    /// Returns whether no file says active, whatever its validity.
    pub fn says_passive(&self) -> bool {
        self.0.borrow().readers.values().all(Option::is_none)
    }

    /// Returns what the files tell at this reading of the boot clock, where it is still valid.
    pub fn active(&self, boot_ns: u64) -> Option<Reader> {
        let files = self.0.borrow();
        let mut readers = files.readers.values().filter_map(|it| *it);
        readers.find(|it| it.until_boot_ns != u64::MAX && it.until_boot_ns > boot_ns)
    }
}

/// Returns what a file tells, as its readers are told to read it; `None` is passive.
fn read(path: &Path, text: &str) -> Option<Reader> {
    if path == Path::new(ROUTE) {
        return (text == "active").then_some(Reader { term: 0, until_boot_ns: u64::MAX });
    }
    if path.extension().is_some_and(|it| it == "json") {
        let document: Document<'_> = serde_json::from_str(text).expect("a status file is JSON");
        let until_boot_ns = document.valid_until_boottime_ns;
        let active = document.role.as_str() == "active";
        return active.then(|| Reader { term: document.term.unwrap_or(0), until_boot_ns });
    }
    let value = |name: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix("='"));
        line.and_then(|it| it.strip_suffix('\'')).unwrap_or_else(|| panic!("{name} in {text}"))
    };
    (value("TENURE_ROLE") == "active").then(|| Reader {
        term: value("TENURE_TERM").parse().expect("a term"),
        until_boot_ns: value("TENURE_VALID_UNTIL_BOOTTIME_NS").parse().expect("a reading"),
    })
}
