//! Service levels: what VMs must deliver, and the weights under which they do.
//!
//! ```text
//! window     what was seen of requests in an interval
//! estimate   how long they will take in the next one: one file, one contract, several answers
//! solve      the weights that make the delays of equation (2) smallest, within levels and bounds
//! control    one step of the loop: from what was seen to weights, or to what to move
//! ```

pub mod control;
pub mod estimate;
pub mod solve;
pub mod window;
