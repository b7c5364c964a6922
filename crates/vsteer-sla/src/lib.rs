//! Service levels: how fast VMs must answer requests, and the CPU weights that achieve this.
//!
//! ```text
//! window     the measured requests of an interval
//! histogram  requests that a histogram counted
//! facts      CPU time, weight and pCPUs of the VMs, from a host's model
//! driven     a simulated Xen host whose requests pass Domain-0
//! spread     how much CPU times differ between requests, estimated from response times
//! estimate   response times in the next interval, by several methods
//! part       forecasts of all estimators for the interval after a recorded one
//! score      errors of the estimators
//! control    one step of the control loop: new weights, or a VM to move
//! hold       the control loop over periods: which to pool, and when not to act
//! period     the requests of a period, and notes for a person
//! weights    new weights as plan steps, and whether they are still in force
//! fit        which VM to move to which other host, if no weights suffice
//! moving     the plan that moves that VM
//! solve      the weights with the smallest delays by equation (2), within levels and bounds
//! paper      the published rules, for reference
//! rule       the decisions of the paper and of Sandpiper, to be compared with ours
//! round      weights rounded to the whole numbers of a hypervisor
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
pub mod rule;
pub mod score;
pub mod solve;
pub mod spread;
pub mod weights;
pub mod window;
