//! What is made of PEM files, and made again when they change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pem::{Contents, Parsed, PemFiles, TlsFault};

/// Makes something of the contents of the files.
type Make<T> = fn(&PemFiles, Parsed) -> Result<T, TlsFault>;

/// Something made of PEM files, as they last were usable.
pub(super) struct Material<T> {
    files: PemFiles,
    make: Make<T>,
    current: Mutex<Current<T>>,
}

struct Current<T> {
    /// The contents that it was made of.
    of: Contents,
    made: Arc<T>,
}

impl<T> Material<T> {
    /// Reads the files, which blocks.
    ///
    /// # Errors
    /// Returns everything that is wrong with them.
    pub(super) fn load(files: PemFiles, make: Make<T>) -> Result<Self, Vec<TlsFault>> {
        let of = files.read_now()?;
        let made = of.parse(&files).and_then(|it| make(&files, it).map_err(|it| vec![it]))?;
        Ok(Self { files, make, current: Mutex::new(Current { of, made: Arc::new(made) }) })
    }

    /// Returns what was made last.
    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.lock().made)
    }

    /// Reads the files again, without blocking; returns whether they have changed.
    ///
    /// # Errors
    /// Returns the first thing that is wrong with them. What was made before stays in use.
    pub(super) async fn refresh(&self) -> Result<bool, TlsFault> {
        let of = self.files.read().await?;
        if self.lock().of == of {
            return Ok(false);
        }
        let parsed = of.parse(&self.files).map_err(|mut faults| faults.swap_remove(0))?;
        let made = Arc::new((self.make)(&self.files, parsed)?);
        *self.lock() = Current { of, made };
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Current<T>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
