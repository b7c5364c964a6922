//! Sets an entity's virtual time when it enters a line, and when its weight changes.

use super::{Earliest, Lines};
use crate::sched::fair::unscaled;

impl Lines<Earliest> {
    /// Gives `e` its virtual time and deadline in `line`, which it is about to enter (`place_entity`). Its
    /// lag is increased, because entering moves the average towards it.
    pub(super) fn place(&mut self, line: u32, e: u32) {
        let average = self.average(line);
        let l = &self.lines[line as usize];
        let entity = &self.entities[e as usize];
        let mut lag = 0;
        if l.queued > 0 && entity.vlag != 0 {
            let grown = i128::from(entity.vlag) * i128::from(l.weight + entity.weight);
            lag = (grown / i128::from(l.weight.max(1))) as i64;
        }
        let mut slice = entity.virtual_of(self.asks_ns(e));
        let entity = &mut self.entities[e as usize];
        entity.vruntime = average - lag;
        if entity.relative {
            entity.deadline += entity.vruntime;
            entity.relative = false;
            return;
        }
        if entity.fresh {
            // On average, the entities in line have used half their slices.
            slice /= 2;
        }
        entity.deadline = entity.vruntime + slice;
    }

    /// Changes the weight. The CPU time that it is owed stays, within bounds (`reweight_entity`).
    pub(super) fn reweigh(&mut self, e: u32, scaled: i64) {
        let entity = &mut self.entities[e as usize];
        let (old, weight, queued) = (entity.scaled, unscaled(scaled), entity.queued);
        if old == scaled {
            return;
        }
        let scale = |v: i64| (i128::from(v) * i128::from(old) / i128::from(scaled)) as i64;
        if !queued {
            entity.vlag = scale(entity.vlag);
            if (self.rules.places_anew || self.rules.flat) && entity.relative {
                entity.deadline = scale(entity.deadline);
            }
            self.set_weight(e, scaled);
            return;
        }
        let lag = scale(self.bounded_lag(e));
        let flat = self.rules.flat;
        let line = self.entities[e as usize].line;
        if !self.rules.places_anew {
            // The average stays (`reweight_eevdf`), so virtual times are relative to it.
            let average = self.average(line);
            self.unlink(e);
            let entity = &mut self.entities[e as usize];
            let deadline = average + scale(entity.deadline - average);
            // In 7.3 the end of the protection moves along.
            entity.protected &= deadline == entity.deadline || flat;
            (entity.vruntime, entity.deadline) = (average - lag, deadline);
            self.set_weight(e, scaled);
            self.link(line, e);
            return;
        }
        let (before, left) = {
            let entity = &self.entities[e as usize];
            (entity.vruntime, scale(entity.deadline - entity.vruntime))
        };
        self.unlink(e);
        let l = &self.lines[line as usize];
        let (mut load, mut sum) = (l.weight, l.sum);
        if l.current == e {
            // It is part of the average used for placing it, with its new weight at its old place.
            load += weight;
            sum += i128::from(weight) * i128::from(before);
        }
        let average = if load == 0 { l.floor } else { sum.div_euclid(i128::from(load)) as i64 };
        let lag = match l.queued {
            0 => 0,
            _ => (i128::from(lag) * i128::from(load + weight) / i128::from(load)) as i64,
        };
        self.set_weight(e, scaled);
        let entity = &mut self.entities[e as usize];
        entity.vruntime = average - lag;
        entity.deadline = entity.vruntime + left;
        // Writing the lag overwrites the end of the protection (`vlag` and `vprot` are one word). Later
        // kernels keep it.
        entity.protected &= self.rules.carries_protection;
        self.link(line, e);
    }
}
