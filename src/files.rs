//! Files where other users, or a file system that hangs, may be in the way: directories by their
//! descriptors, and small files that are read with bounds on size and threads.

mod directory;
mod small_file;

pub(crate) use directory::{Directory, GUARDED, exposure};
pub(crate) use small_file::{SmallFile, read, reason};
