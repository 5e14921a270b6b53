//! Counts of the events in each queue.

use std::collections::HashMap;

use tower_triage_durable::{QueueEvent, QueueTotal};

/// The totals since the store was opened.
#[derive(Debug, Default)]
pub(super) struct Totals {
    queues: HashMap<String, HashMap<QueueEvent, u64>>,
}

impl Totals {
    /// The largest number of queues with counts of their own, because clients may invent names. Further queues share
    /// the empty name.
    const MAX_QUEUES: usize = 4_096;

    pub(super) fn add(&mut self, queue: &str, event: QueueEvent) {
        let is_apart = self.queues.contains_key(queue) || self.queues.len() < Self::MAX_QUEUES;
        let queue = if is_apart { queue } else { "" };
        if let Some(events) = self.queues.get_mut(queue) {
            *events.entry(event).or_default() += 1;
        } else {
            let events = HashMap::from([(event, 1)]);
            self.queues.insert(queue.to_owned(), events);
        }
    }

    /// Takes back an event that was added but could not be written to the disk.
    pub(super) fn undo(&mut self, queue: &str, event: &QueueEvent) {
        let is_apart = self.queues.contains_key(queue);
        let queue = if is_apart { queue } else { "" };
        if let Some(events) = self.queues.get_mut(queue)
            && let Some(count) = events.get_mut(event)
        {
            *count -= 1;
            if *count == 0 {
                events.remove(event);
            }
        }
    }

    pub(super) fn to_vec(&self) -> Vec<QueueTotal> {
        let queues = self.queues.iter();
        let totals = queues.flat_map(|(queue, events)| {
            let total = |(event, count): (&QueueEvent, &u64)| {
                QueueTotal::new(queue.clone(), event.clone(), *count)
            };
            events.iter().map(total)
        });
        totals.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_beyond_the_limit_are_counted_together() {
        let mut totals = Totals::default();
        for queue in 0..Totals::MAX_QUEUES + 10 {
            totals.add(&format!("queue-{queue}"), QueueEvent::WorkerLost);
        }
        totals.add("queue-0", QueueEvent::WorkerLost);
        let totals = totals.to_vec();
        assert_eq!(totals.len(), Totals::MAX_QUEUES + 1);
        let count = |queue| {
            totals
                .iter()
                .find(|total| total.queue == queue)
                .unwrap()
                .count
        };
        assert_eq!((count("queue-0"), count("queue-1"), count("")), (2, 1, 10));
    }
}
