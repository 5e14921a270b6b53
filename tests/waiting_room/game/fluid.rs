//! An ideal room: it serves work like a fluid, shares its slots exactly, and leaves no slot idle while work waits.

use super::super::simulation::Call;
use super::{Game, Sharing};

/// The work that waits in an ideal room, in seconds of one slot.
struct Fluid {
    sharing: Sharing,
    slots: f64,
    /// The work of each tenant with `Fair`, or of each level otherwise, the most urgent first.
    queues: Vec<f64>,
    /// The time up to which the room has served its work, in seconds.
    now: f64,
}

/// Returns, for each call, `true` if an ideal room admits it.
pub(crate) fn admitted(game: &Game, calls: &[Call]) -> Vec<bool> {
    let mut fluid = Fluid {
        sharing: game.sharing,
        slots: game.slots as f64,
        queues: vec![0.0; 2 + game.adversaries.len()],
        now: 0.0,
    };
    let mut admitted = vec![false; calls.len()];
    let mut in_order: Vec<usize> = (0..calls.len()).collect();
    in_order.sort_by_key(|&number| calls[number].at);
    for number in in_order {
        let call = &calls[number];
        fluid.serve_until(call.at.as_secs_f64());
        let queue = game.sharing.queue(call.tenant);
        if fluid.wait(queue) <= game.longest_wait(call) {
            admitted[number] = true;
            fluid.queues[queue] += call.service.as_secs_f64();
        }
    }
    admitted
}

impl Fluid {
    fn serve_until(&mut self, now: f64) {
        let work = (now - self.now) * self.slots;
        self.now = now;
        match self.sharing {
            Sharing::Fair => self.serve_equally(work),
            _ => self.serve_in_order(work),
        }
    }

    fn serve_in_order(&mut self, mut work: f64) {
        for queue in &mut self.queues {
            let served = queue.min(work);
            *queue -= served;
            work -= served;
        }
    }

    /// Serves the queues with work equally until the shortest is empty, and then the others.
    fn serve_equally(&mut self, mut work: f64) {
        while work > 0.0 {
            let waiting = || self.queues.iter().filter(|&&queue| queue > 0.0);
            let Some(least) = waiting().copied().reduce(f64::min) else {
                return;
            };
            let count = waiting().count() as f64;
            let served = least.min(work / count);
            let waiting = self.queues.iter_mut().filter(|queue| **queue > 0.0);
            waiting.for_each(|queue| *queue -= served);
            work -= served * count;
        }
    }

    /// Returns the wait of an arrival that no other follows, in seconds.
    fn wait(&self, queue: usize) -> f64 {
        let own = self.queues[queue];
        let ahead: f64 = match self.sharing {
            Sharing::Fair => self.queues.iter().map(|other| other.min(own)).sum(),
            _ => self.queues[..=queue].iter().sum(),
        };
        ahead / self.slots
    }
}

impl Sharing {
    /// Returns the queue of a tenant.
    fn queue(self, tenant: usize) -> usize {
        match self {
            Self::Fifo => 0,
            Self::Fair => tenant,
            Self::HonestAbove => usize::from(tenant != 0),
            // Adversaries may name deadlines that go before all others.
            Self::HonestBelow | Self::Deadline => usize::from(tenant == 0),
        }
    }
}

impl Game {
    /// Returns the longest wait for which a call is admitted, in seconds.
    ///
    /// Above twice the automatic target, the room refuses all requests of a standing queue. This holds for honest calls,
    /// and with `Fifo` for others like them. Adversaries that try again or name a deadline get in later, too, which
    /// leaves less to the honest tenant.
    fn longest_wait(&self, call: &Call) -> f64 {
        let is_like_honest = call.retries == 0 && call.named.is_none();
        match call.tenant == 0 || self.sharing == Sharing::Fifo && is_like_honest {
            true => 2.0 * self.service * (3.0 / self.slots as f64).max(0.125),
            false => f64::INFINITY,
        }
    }
}
