//! Each rule once, by name.
