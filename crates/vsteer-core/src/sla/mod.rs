//! Service levels: what VMs must deliver, and the weights under which they do.
//!
//! ```text
//! solve      the weights that make the delays of equation (2) smallest, within levels and bounds
//! ```

pub mod solve;
