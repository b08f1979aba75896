//! The file backend.
