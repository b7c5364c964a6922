//! Where does an entity's virtual time begin when it enters a line, and where when its weight changes?

use super::{Earliest, Lines};
use crate::sched::fair::unscaled;

impl Lines<Earliest> {
    /// Gives `e` its virtual time and deadline in `line`, which it is about to enter (`place_entity`). The lag it comes
    /// with is made larger, because entering shifts the average towards it.
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
            // Those in line are half through their slices on average.
            slice /= 2;
        }
        entity.deadline = entity.vruntime + slice;
    }

    /// What it is owed in CPU time stays, within bounds (`reweight_entity`).
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
            // The average stays where it is (`reweight_eevdf`), so virtual times are relative to it.
            let average = self.average(line);
            self.unlink(e);
            let entity = &mut self.entities[e as usize];
            let deadline = average + scale(entity.deadline - average);
            // In 7.3 the end of the protection is moved along.
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
            // It is in the average that it is placed by, with its new weight at its old place.
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
        // The lag is written where the end of the protection is kept (`vlag` and `vprot` are one word); later that
        // is carried along.
        entity.protected &= self.rules.carries_protection;
        self.link(line, e);
    }
}
