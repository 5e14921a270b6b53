//! The scenarios: each builds a workload for a load.

use std::time::Duration;

use fastrand::Rng;

use super::arrivals::{Piece, arrivals, bursty, constant, conversation, on_off};
use super::sizes::{
    BURSTY_INPUT, BURSTY_OUTPUT, CONVERSATION_INPUT, CONVERSATION_OPPOSED, CONVERSATION_OUTPUT,
    heavy_tailed, llm_service, tokens,
};
use super::trace::Row;
use super::{Callers, Group, Request, Until, Workload};

/// A kind of workload.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// The loads of the tables, in multiples of what the slots can do.
    pub(crate) loads: &'static [f64],
    /// The callers, if the command line names none.
    pub(crate) callers: &'static [Callers],
    build: fn(&Source, f64) -> Workload,
}

/// With this seed, the generated bursts are close to the recorded ones also in what is left to chance: the busiest minute,
/// and the longest idle time.
pub(crate) const DEFAULT_SEED: u64 = 4;

/// Where requests come from.
pub(crate) struct Source {
    pub(crate) seed: u64,
    /// The share of the usual number of requests.
    pub(crate) scale: f64,
    /// Replaces the generated conversation.
    pub(crate) trace: Option<Vec<Row>>,
}

impl Scenario {
    pub(crate) fn build(&self, source: &Source, load: f64, callers: Callers) -> Workload {
        let workload = (self.build)(source, load);
        Workload {
            callers,
            ..workload
        }
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "conversation",
        about: "a language model, 5.5 requests/s, 4.4 s each; to be started within 5 s",
        loads: &[1.2, 1.5, 2.0],
        callers: &Callers::ALL,
        build: |source, load| llm(source.conversation(), load),
    },
    Scenario {
        name: "bursty",
        about: "a language model, idle for most of the time; to be started within 5 s",
        loads: &[0.7, 1.0, 2.0],
        callers: &[Callers::Stay, Callers::LeaveAndSaySo],
        build: |source, load| llm(source.bursty(), load),
    },
    Scenario {
        name: "poisson",
        about: "8 slots of 200 ms; to be answered within 1 s; the backend notices callers that leave",
        loads: &[0.8, 1.5, 3.0],
        callers: &[Callers::Leave, Callers::LeaveAndSaySo],
        build: |source, load| Workload {
            backend_notices: true,
            ..short(source, load, constant, |_| MEAN_SHORT)
        },
    },
    Scenario {
        name: "on-off",
        about: "8 slots of 200 ms, 5 s of five times the rate in each 20 s; to be answered within 1 s",
        loads: &[0.8, 1.2, 2.0],
        callers: &[Callers::Leave, Callers::LeaveAndSaySo],
        build: |source, load| short(source, load, on_off, |_| MEAN_SHORT),
    },
    Scenario {
        name: "heavy-tail",
        about: "8 slots, service by Pareto's distribution, 200 ms on average; to be started within 1 s",
        loads: &[0.8, 1.2, 2.0],
        callers: &[Callers::Leave, Callers::LeaveAndSaySo],
        build: |source, load| Workload {
            until: Until::Started,
            ..short(source, load, constant, heavy_tailed)
        },
    },
    Scenario {
        name: "levels",
        about: "the conversation, of which 20 % are of high priority",
        loads: &[1.2, 1.5, 2.0],
        callers: &Callers::ALL,
        build: |source, load| levels(llm(source.conversation(), load), source.seed),
    },
    Scenario {
        name: "tenants",
        about: "the conversation, of which one tenant sends half, and nine share the rest",
        loads: &[1.2, 1.5, 2.0],
        callers: &Callers::ALL,
        build: |source, load| tenants(llm(source.conversation(), load), source.seed),
    },
    Scenario {
        name: "attack",
        about: "8 slots of 200 ms, patient callers at a load of 0.75; in the first half the rest are hang-ups after 600 ms",
        // In the first half, hang-ups add 1/4, 1/2 and 1 1/2 of what the slots can do.
        loads: &[0.875, 1.0, 1.5],
        callers: &[Callers::Leave],
        build: attack,
    },
];

impl Source {
    fn count(&self, usual: usize) -> usize {
        ((usual as f64 * self.scale) as usize).max(100)
    }

    pub(super) fn conversation(&self) -> Vec<Row> {
        if let Some(trace) = &self.trace {
            return trace.clone();
        }
        const RATE: f64 = 5.53;
        let mut rng = Rng::with_seed(self.seed);
        let count = self.count(19_366);
        let times = arrivals(&mut rng, count, RATE, conversation(RATE));
        rows(&mut rng, times, |rng| {
            let (input, output) = (CONVERSATION_INPUT, CONVERSATION_OUTPUT);
            tokens(rng, input, output, CONVERSATION_OPPOSED)
        })
    }

    pub(super) fn bursty(&self) -> Vec<Row> {
        const RATE: f64 = 2.57;
        let mut rng = Rng::with_seed(self.seed);
        let count = self.count(8_819);
        let times = arrivals(&mut rng, count, RATE, bursty());
        rows(&mut rng, times, |rng| {
            tokens(rng, BURSTY_INPUT, BURSTY_OUTPUT, 0.0)
        })
    }
}

fn rows(rng: &mut Rng, times: Vec<f64>, tokens: impl Fn(&mut Rng) -> (u32, u32)) -> Vec<Row> {
    let row = |at| {
        let (input_tokens, output_tokens) = tokens(rng);
        Row {
            at,
            input_tokens,
            output_tokens,
        }
    };
    times.into_iter().map(row).collect()
}

/// The level of requests without one: the crate's default, `normal`.
const NORMAL: u8 = 1;

/// A language model with as many slots as give this load.
fn llm(rows: Vec<Row>, load: f64) -> Workload {
    let request = |row: &Row| Request {
        arrival: Duration::from_secs_f64(row.at),
        service: llm_service(row.input_tokens, row.output_tokens),
        input_tokens: row.input_tokens,
        level: NORMAL,
        tenant: 0,
        hangs_up: None,
    };
    let mut workload = Workload {
        requests: rows.iter().map(request).collect(),
        duration: Duration::from_secs_f64(rows.last().map_or(1.0, |row| row.at)),
        slots: 1,
        patience: Duration::from_secs(5),
        until: Until::Started,
        callers: Callers::Stay,
        backend_notices: false,
        is_fair: false,
        groups: &[],
    };
    workload.slots = ((workload.load() / load).round() as usize).max(1);
    workload
}

const SHORT_SLOTS: usize = 8;
/// The service time of short requests, on average.
const MEAN_SHORT: Duration = Duration::from_millis(200);

/// Eight slots, and as many short requests per second as give this load.
fn short<P: FnMut(&mut Rng) -> Piece>(
    source: &Source,
    load: f64,
    pieces: impl Fn(f64) -> P,
    service: impl Fn(&mut Rng) -> Duration,
) -> Workload {
    let mut rng = Rng::with_seed(source.seed);
    let rate = load * SHORT_SLOTS as f64 / MEAN_SHORT.as_secs_f64();
    let times = arrivals(&mut rng, source.count(30_000), rate, pieces(rate));
    let request = |at: &f64| Request {
        arrival: Duration::from_secs_f64(*at),
        service: service(&mut rng),
        input_tokens: 0,
        level: NORMAL,
        tenant: 0,
        hangs_up: None,
    };
    Workload {
        requests: times.iter().map(request).collect(),
        duration: Duration::from_secs_f64(times.last().copied().unwrap_or(1.0)),
        slots: SHORT_SLOTS,
        patience: Duration::from_secs(1),
        until: Until::Answered,
        callers: Callers::Leave,
        backend_notices: false,
        is_fair: false,
        groups: &[],
    }
}

fn levels(workload: Workload, seed: u64) -> Workload {
    let mut rng = Rng::with_seed(seed);
    let level = |request: &Request| Request {
        level: if rng.f64() < 0.2 { 0 } else { NORMAL },
        ..*request
    };
    Workload {
        requests: workload.requests.iter().map(level).collect(),
        groups: &[
            Group {
                name: "high",
                contains: |request| request.level == 0,
            },
            Group {
                name: "normal",
                contains: |request| request.level == NORMAL,
            },
        ],
        ..workload
    }
}

fn tenants(workload: Workload, seed: u64) -> Workload {
    let mut rng = Rng::with_seed(seed);
    let tenant = |request: &Request| Request {
        tenant: if rng.bool() { 0 } else { rng.u8(1..10) },
        ..*request
    };
    Workload {
        requests: workload.requests.iter().map(tenant).collect(),
        is_fair: true,
        groups: &[
            Group {
                name: "the greedy one",
                contains: |request| request.tenant == 0,
            },
            Group {
                name: "the nine",
                contains: |request| request.tenant != 0,
            },
        ],
        ..workload
    }
}

/// The load of the callers that are attacked.
const HONEST: f64 = 0.75;
/// Requests of honest callers from ten seconds after the attack on: a tenant of their own, to be told apart.
const AFTER_ATTACK: u8 = 1;
const HANG_UPS: u8 = 2;

/// Patient callers. In the first half, others send as many requests as give this load on average, and hang up.
fn attack(source: &Source, load: f64) -> Workload {
    let workload = short(source, load.min(HONEST), constant, |_| MEAN_SHORT);
    let half = workload.duration / 2;
    let mut rng = Rng::with_seed(!source.seed);
    let rate = 2.0 * (load - HONEST).max(0.0) * SHORT_SLOTS as f64 / MEAN_SHORT.as_secs_f64();
    let count = (rate * half.as_secs_f64()) as usize;
    let times = match count {
        0 => Vec::new(),
        _ => arrivals(&mut rng, count, rate, constant(rate)),
    };
    let hang_ups = times.into_iter().map(|at| Request {
        arrival: Duration::from_secs_f64(at),
        service: MEAN_SHORT,
        input_tokens: 0,
        level: NORMAL,
        tenant: HANG_UPS,
        hangs_up: Some(3 * MEAN_SHORT),
    });
    let honest = workload.requests.iter().map(|request| Request {
        tenant: match request.arrival > half + Duration::from_secs(10) {
            true => AFTER_ATTACK,
            false => request.tenant,
        },
        ..*request
    });
    let mut requests: Vec<Request> = honest.chain(hang_ups).collect();
    requests.sort_by_key(|request| request.arrival);
    Workload {
        requests: requests.into(),
        patience: Duration::from_secs(20),
        groups: &[
            Group {
                name: "honest, attacked",
                contains: |request| request.tenant == 0,
            },
            Group {
                name: "honest, 10 s later",
                contains: |request| request.tenant == AFTER_ATTACK,
            },
            Group {
                name: "hang-ups",
                contains: |request| request.tenant == HANG_UPS,
            },
        ],
        ..workload
    }
}
