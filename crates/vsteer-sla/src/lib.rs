//! Service levels: what VMs must deliver, and the weights under which they do.
//!
//! ```text
//! window     what was seen of requests in an interval
//! histogram  requests as a histogram counted them
//! facts      what a host's model says of the VMs
//! driven     a Xen host, simulated with requests that pass Domain-0
//! spread     how much CPU times differ from request to request, read off how long they took
//! estimate   how long they will take in the next one: one file, one contract, several answers
//! part       what all estimators foretell of the interval after a recorded one
//! score      how far off estimators were
//! control    one step of the loop: from what was seen to weights, or to what to move
//! hold       the loop over periods: which belong together, and when not to act
//! period     which requests belong to a period, and what a person must know about it
//! weights    an outcome's weights as steps, and whether they still hold
//! fit        who goes to which other host, where no weights do
//! moving     the plan that moves that VM
//! solve      the weights that make the delays of equation (2) smallest, within levels and bounds
//! paper      the published rules by the letter, for reference
//! round      weights to the whole numbers that a hypervisor takes
//! ```

pub mod control;
pub mod driven;
pub mod estimate;
pub mod facts;
pub mod fit;
pub mod histogram;
pub mod hold;
pub mod moving;
pub mod paper;
pub mod part;
pub mod period;
pub mod round;
pub mod score;
pub mod solve;
pub mod spread;
pub mod weights;
pub mod window;
