//! Between bytes and nouns: recordings, and the formats they are exported to.

pub mod export;
mod folder;
mod table;

pub use folder::{ConfigAt, FORMAT, Manifest, Recording, Writer};
