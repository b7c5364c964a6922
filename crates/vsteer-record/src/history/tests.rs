//! What holds for the history as a whole: power cuts, full disks, sizes.

mod cuts;
mod full;
mod sizes;
mod stores;
