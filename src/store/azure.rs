//! The azure backend.
