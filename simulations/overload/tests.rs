//! Tests of what the simulation claims: the simulation is right, the other policies behave as published, and this crate's
//! margins over them. The generators' shapes are tested in `workload/tests.rs`, the bound in `bound.rs`.

use std::sync::LazyLock;
use std::time::Duration;

use crate::args::{Args, help};
use crate::bound::most_useful;
use crate::plot::plot;
use crate::policies::{AFTER, BEFORE, Entry, POLICIES, Setting};
use crate::policy::{Arrival, Decision, Ended, Policy, RequestId};
use crate::report::{Figures, Report};
use crate::simulation::{Outcome, Run, simulate};
use crate::study::Study;
use crate::table::table;
use crate::workload::scenarios::{DEFAULT_SEED, SCENARIOS, Scenario, Source};
use crate::workload::{Callers, Request, Until, Workload};

fn source(scale: f64) -> Source {
    Source {
        seed: DEFAULT_SEED,
        scale,
        trace: None,
    }
}

/// The conversation at 1.2, 1.5 and 2.0 times what the slots can do; callers stay, as in the published table.
static CONVERSATION: LazyLock<[Workload; 3]> = LazyLock::new(|| {
    let scenario = Scenario::named("conversation").unwrap();
    [1.2, 1.5, 2.0].map(|load| scenario.build(&source(1.0), load, Callers::Stay))
});

fn run(name: &str, workload: &Workload) -> Run {
    let setting = Setting::of(workload, DEFAULT_SEED);
    simulate(workload, &mut *(Entry::named(name).make)(&setting))
}

fn figures(name: &str, workload: &Workload) -> Figures {
    Report::new(workload, &run(name, workload)).all
}

/// Every scenario below and above its capacity, with all callers, and few requests.
fn short_workloads() -> Vec<(String, Workload)> {
    let mut workloads = Vec::new();
    for scenario in SCENARIOS {
        for callers in Callers::ALL {
            for load in [0.7, 2.0] {
                let name = format!("{} at {load} ({})", scenario.name, callers.name());
                workloads.push((name, scenario.build(&source(0.03), load, callers)));
            }
        }
    }
    workloads
}

// ## This crate: its margins over the others

/// The room that is bounded by number does next to no useful work: all that it serves is too late.
#[test]
fn a_room_bounded_by_number_wastes_its_slots() {
    for workload in &*CONVERSATION {
        let before = figures(BEFORE, workload);
        assert!(before.useful < 0.05, "{before:?}");
    }
}

fn overloaded(scenario: &str, load: f64, callers: Callers) -> Workload {
    let scenario = Scenario::named(scenario).unwrap();
    scenario.build(&source(1.0), load, callers)
}

/// Nearly all of the slots' time is of use, the served wait little, and few of the refused waited.
#[test]
fn a_room_bounded_by_time_spends_its_slots_well() {
    for (load, useful) in [(1.2, 0.95), (1.5, 0.97), (2.0, 0.98)] {
        let workload = overloaded("conversation", load, Callers::LeaveAndSaySo);
        let after = figures(AFTER, &workload);
        assert!(after.useful >= useful, "{load}: {after:?}");
        let median = after.median_wait.unwrap().as_secs_f64();
        let patience = workload.patience.as_secs_f64();
        assert!(median <= 0.35 * patience, "{load}: {after:?}");
        assert!(after.in_vain <= 0.05, "{load}: {after:?}");
    }
}

#[test]
fn callers_that_say_nothing_are_served_in_time_as_well() {
    for load in [1.5, 3.0] {
        let workload = overloaded("poisson", load, Callers::Leave);
        let [before, after] = [BEFORE, AFTER].map(|policy| figures(policy, &workload));
        assert!(before.useful < 0.2, "{load}: {before:?}");
        assert!(after.useful > 0.91, "{load}: {after:?}");
    }
}

#[test]
fn a_room_bounded_by_time_lets_bursts_in() {
    for (scenario, below) in [("bursty", 0.04), ("on-off", 0.04)] {
        let workload = overloaded(scenario, 1.1, Callers::LeaveAndSaySo);
        let after = figures(AFTER, &workload);
        let bound = most_useful(&workload);
        assert!(after.useful > bound - below, "{scenario}: {after:?}");
    }
}

#[test]
fn urgent_requests_pay_nothing_for_the_overload_of_others() {
    for load in [1.2, 1.5, 2.0] {
        let workload = overloaded("levels", load, Callers::LeaveAndSaySo);
        let report = Report::new(&workload, &run(AFTER, &workload));
        assert!(report.groups[0].in_time > 0.999, "{load}");
        assert!(report.all.useful > 0.93, "{load}: {:?}", report.all);
    }
}

#[test]
fn modest_tenants_pay_nothing_for_a_greedy_one() {
    let workload = overloaded("tenants", 1.5, Callers::LeaveAndSaySo);
    let report = Report::new(&workload, &run(AFTER, &workload));
    assert!(report.groups[1].in_time > 0.95, "{:?}", report.groups);
    assert!(report.all.useful > 0.96, "{:?}", report.all);
}

/// In the first half, hang-ups are 1/4, 2/5 and 2/3 of all requests.
#[test]
fn hang_ups_take_no_more_than_their_part_and_only_while_they_last() {
    for (load, least) in [(0.875, 0.95), (1.0, 0.79), (1.5, 0.45)] {
        let workload = overloaded("attack", load, Callers::Leave);
        let report = Report::new(&workload, &run(AFTER, &workload));
        let [attacked, later, _] = report.groups[..] else {
            panic!("three groups");
        };
        assert!(attacked.in_time >= least, "{load}: {attacked:?}");
        assert!(later.in_time >= 0.999, "{load}: {later:?}");
    }
}

// ## The other policies, as published: the table of the recorded conversation, within the noise of a generated one

fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    let error = (value - expected).abs();
    assert!(error <= tolerance, "{what}: {value:.3}, not {expected}");
}

#[test]
fn an_unbounded_fifo_does_no_useful_work() {
    for (workload, mean_wait) in CONVERSATION.iter().zip([465.0, 1005.0, 1907.0]) {
        let fifo = figures("tower ConcurrencyLimit", workload);
        assert_near("useful", fifo.useful, 0.01, 0.03);
        let median = fifo.median_wait.unwrap().as_secs_f64();
        assert_near("median wait", median / mean_wait, 1.0, 0.4);
    }
}

#[test]
fn a_fifo_bounded_by_patience_is_useful_and_slow() {
    for policy in [
        "HAProxy maxconn",
        "tower Timeout + it",
        "before, max_wait = patience",
    ] {
        for (workload, wait) in CONVERSATION.iter().zip([4.2, 4.6, 4.8]) {
            let bounded = figures(policy, workload);
            assert_near(policy, bounded.useful, 0.99, 0.015);
            let median = bounded.median_wait.unwrap().as_secs_f64();
            assert_near(policy, median, wait, 0.25);
            // Those that it does not serve waited for as long as they could.
            assert_near(policy, bounded.in_vain, 1.0, 0.001);
        }
    }
}

#[test]
fn refusal_by_estimate_is_useful_and_fast() {
    let expected = [(0.95, 0.28), (0.97, 0.43), (0.98, 0.47)];
    for (workload, (useful, wait)) in CONVERSATION.iter().zip(expected) {
        let early = figures("FIFO, estimate > 0.2 patience", workload);
        assert_near("useful", early.useful, useful, 0.02);
        let median = early.median_wait.unwrap().as_secs_f64();
        assert_near("median wait", median, wait, 0.12);
        let p99 = early.p99_wait.unwrap().as_secs_f64();
        assert_near("p99 wait", p99, 1.85, 0.4);
        assert!(early.in_vain < 0.001, "{early:?}");

        let late = figures("FIFO, estimate > patience", workload);
        assert_near("useful", late.useful, 0.99, 0.015);
    }
}

#[test]
fn without_a_room_a_tenth_of_the_slots_is_lost() {
    for (workload, useful) in CONVERSATION.iter().zip([0.88, 0.91, 0.93]) {
        let shed = figures("tower LoadShed + it", workload);
        assert_near("useful", shed.useful, useful, 0.015);
        assert_eq!(shed.in_vain, 0.0);
        assert_eq!(shed.p99_wait, Some(Duration::ZERO));
    }
}

/// concurrency-limits #134: under overload the limit of Gradient2 grows far beyond the slots.
#[test]
fn gradient2_drifts_upwards_under_overload() {
    let [.., twice] = &*CONVERSATION;
    let gradient2 = figures("Netflix Gradient2", twice);
    assert!(gradient2.useful < 0.5, "{gradient2:?}");
    assert!(
        gradient2.median_wait > Some(twice.patience),
        "{gradient2:?}"
    );
}

/// Dynamo #10571: long prompts starve.
#[test]
fn wspt_starves_long_prompts() {
    let [_, half_more, _] = &*CONVERSATION;
    let run = run("Dynamo WSPT", half_more);
    let lives = || half_more.requests.iter().zip(&run.records);
    let in_time = |is_counted: fn(u32) -> bool| {
        let counted = lives().filter(|(request, _)| is_counted(request.input_tokens));
        let (all, in_time) = counted.fold((0, 0), |(all, in_time), (request, record)| {
            let (start, _) = record.slot.unwrap();
            let is_in_time = start <= request.arrival + half_more.patience;
            (all + 1, in_time + u32::from(is_in_time))
        });
        f64::from(in_time) / f64::from(all)
    };
    assert!(in_time(|tokens| tokens < 500) > 0.95);
    assert!(in_time(|tokens| tokens > 2_000) < 0.05);
}

#[test]
fn urgent_levels_go_first_where_a_policy_has_levels() {
    let scenario = Scenario::named("levels").unwrap();
    let workload = scenario.build(&source(1.0), 1.5, Callers::LeaveAndSaySo);
    for policy in [
        BEFORE,
        AFTER,
        "HAProxy maxconn",
        "SMG classes",
        "Dynamo WSPT",
    ] {
        let report = Report::new(&workload, &run(policy, &workload));
        let [high, normal] = report.groups[..] else {
            panic!("two levels");
        };
        assert!(high.in_time > 0.99, "{policy}: {high:?}");
        assert!(normal.in_time < 0.7, "{policy}: {normal:?}");
    }
}

#[test]
fn tenants_get_equal_shares_where_a_room_is_fair() {
    let scenario = Scenario::named("tenants").unwrap();
    let workload = scenario.build(&source(1.0), 1.5, Callers::LeaveAndSaySo);
    let shares = |policy| {
        let report = Report::new(&workload, &run(policy, &workload));
        [report.groups[0].in_time, report.groups[1].in_time]
    };
    let [greedy, nine] = shares(AFTER);
    assert!(greedy < 0.5 && nine > 0.9, "{greedy} {nine}");
    let [greedy, nine] = shares("HAProxy maxconn");
    assert_near("fifo", greedy / nine, 1.0, 0.05);
}

// ## The simulation

#[test]
fn every_request_has_one_outcome_and_slots_suffice() {
    for (name, workload) in short_workloads() {
        for policy in POLICIES {
            let run = run(policy.name, &workload);
            let name = format!("{name}: {}", policy.name);
            assert_eq!(run.records.len(), workload.requests.len(), "{name}");
            assert_slots_suffice(&workload, &run, &name);
            for (request, record) in workload.requests.iter().zip(&run.records) {
                assert!(record.decided >= request.arrival, "{name}: {record:?}");
                match (record.outcome, record.slot) {
                    (Outcome::Served, Some((start, end))) => {
                        assert!(start >= request.arrival, "{name}");
                        assert_eq!(end, start + request.service, "{name}");
                        assert_eq!(end, record.decided, "{name}");
                    }
                    (Outcome::Served, None) => panic!("{name}: served without a slot"),
                    (Outcome::Left, _) => {
                        assert_ne!(workload.callers, Callers::Stay, "{name}");
                        let patience_ends = request.arrival + workload.patience_of(request);
                        assert_eq!(record.decided, patience_ends, "{name}");
                    }
                    (Outcome::Refused, _) => {}
                }
            }
        }
    }
}

/// No more slots work at a time than there are.
fn assert_slots_suffice(workload: &Workload, run: &Run, name: &str) {
    let slots = run.records.iter().filter_map(|record| record.slot);
    // Ends first: a slot that becomes free is taken at the same instant.
    let mut changes: Vec<(Duration, i32)> = slots
        .flat_map(|(start, end)| [(start, 1), (end, -1)])
        .collect();
    changes.sort_unstable();
    let mut busy = 0;
    for (_, change) in changes {
        busy += change;
        assert!(busy <= workload.slots as i32, "{name}");
    }
    assert_eq!(busy, 0, "{name}");
}

#[test]
fn figures_add_up_and_stay_below_the_bound() {
    for (name, workload) in short_workloads() {
        let bound = most_useful(&workload);
        assert!(bound <= 1.0 && bound <= workload.load(), "{name}: {bound}");
        for policy in POLICIES {
            let name = format!("{name}: {}", policy.name);
            let Report { all, groups } = Report::new(&workload, &run(policy.name, &workload));
            assert!(all.useful <= bound + 1e-9, "{name}: {all:?} {bound}");
            let unserved = 1.0 - all.in_time - all.late;
            let sum = all.in_time + all.late + all.at_once + all.in_vain * unserved;
            assert!((sum - 1.0).abs() < 1e-9, "{name}: {all:?}");
            let useful: f64 = groups.iter().map(|group| group.useful).sum();
            let is_whole = groups.is_empty() || (useful - all.useful).abs() < 1e-9;
            assert!(is_whole, "{name}: {groups:?}");
        }
    }
}

#[test]
fn no_slot_is_idle_while_a_request_waits() {
    for (name, workload) in short_workloads() {
        // An adaptive limit may be below the number of slots.
        let adapts = |name: &str| name.contains("Gradient2") || name.contains("failsafe-go");
        for policy in POLICIES.iter().filter(|policy| !adapts(policy.name)) {
            let run = run(policy.name, &workload);
            assert_eq!(run.idle_while_waiting, 0.0, "{name}: {}", policy.name);
        }
    }
}

#[test]
fn every_run_with_a_seed_is_the_same() {
    let scenario = Scenario::named("levels").unwrap();
    let build = |seed| {
        let source = Source {
            seed,
            ..source(0.1)
        };
        scenario.build(&source, 1.5, Callers::Leave)
    };
    let (workload, other) = (build(DEFAULT_SEED), build(DEFAULT_SEED + 1));
    assert_eq!(workload.requests, build(DEFAULT_SEED).requests);
    assert_ne!(workload.requests, other.requests);
    for policy in POLICIES {
        let again = run(policy.name, &workload);
        assert_eq!(run(policy.name, &workload), again, "{}", policy.name);
    }
}

/// Admits all that arrives.
struct Open;

impl Policy for Open {
    fn arrive(&mut self, arrival: Arrival, _: Duration, decisions: &mut Vec<Decision>) {
        decisions.push(Decision::Admit(arrival.id));
    }
    fn release(&mut self, _: RequestId, _: Ended, _: Duration, _: &mut Vec<Decision>) {}
    fn leave(&mut self, _: RequestId, _: Duration, _: &mut Vec<Decision>) {}
}

/// Requests on one slot, by arrival and service in seconds. Callers are patient for 2 s.
fn by_hand(requests: &[(u64, u64)], until: Until, callers: Callers, notices: bool) -> Workload {
    let request = |&(arrival, service): &(u64, u64)| Request {
        arrival: Duration::from_secs(arrival),
        service: Duration::from_secs(service),
        input_tokens: 0,
        level: 1,
        tenant: 0,
        hangs_up: None,
    };
    Workload {
        requests: requests.iter().map(request).collect(),
        duration: Duration::from_secs(10),
        slots: 1,
        patience: Duration::from_secs(2),
        until,
        callers,
        backend_notices: notices,
        is_fair: false,
        groups: &[],
    }
}

fn slots(run: &Run) -> Vec<Option<(u64, u64)>> {
    let seconds = |(start, end): (Duration, Duration)| (start.as_secs(), end.as_secs());
    run.records
        .iter()
        .map(|record| record.slot.map(seconds))
        .collect()
}

fn outcomes(run: &Run) -> Vec<Outcome> {
    run.records.iter().map(|record| record.outcome).collect()
}

#[test]
fn what_a_policy_admits_too_soon_waits_in_the_backend() {
    use Outcome::{Left, Served};
    let requests = [(0, 3), (0, 1), (1, 1)];
    // The second starts too late, the third at the last moment.
    let stay = by_hand(&requests, Until::Started, Callers::Stay, false);
    let run = simulate(&stay, &mut Open);
    assert_eq!(slots(&run), [Some((0, 3)), Some((3, 4)), Some((4, 5))]);
    assert_eq!(outcomes(&run), [Served; 3]);
    let all = Report::new(&stay, &run).all;
    assert_eq!((all.useful, all.in_time), (0.3, 1.0 / 3.0));

    // Unnoticed, the backend works for the second after its caller has left.
    let leave = by_hand(&requests, Until::Started, Callers::Leave, false);
    let run = simulate(&leave, &mut Open);
    assert_eq!(slots(&run), [Some((0, 3)), Some((3, 4)), Some((4, 5))]);
    assert_eq!(outcomes(&run), [Served, Left, Left]);

    // Noticed, it does not, and the third starts at the last moment.
    let noticed = by_hand(&requests, Until::Started, Callers::Leave, true);
    let run = simulate(&noticed, &mut Open);
    assert_eq!(slots(&run), [Some((0, 3)), None, Some((3, 4))]);
    assert_eq!(outcomes(&run), [Served, Left, Served]);
    assert_eq!(Report::new(&noticed, &run).all.useful, 0.4);
}

#[test]
fn callers_that_wait_for_answers_leave_during_service() {
    use Outcome::{Left, Served};
    let requests = [(0, 3), (1, 1), (2, 1)];
    // The first would be answered after 3 s: its slot is freed after 2 s, if the backend notices.
    let noticed = by_hand(&requests, Until::Answered, Callers::Leave, true);
    let run = simulate(&noticed, &mut Open);
    assert_eq!(slots(&run), [Some((0, 2)), Some((2, 3)), Some((3, 4))]);
    assert_eq!(outcomes(&run), [Left, Served, Served]);
    assert_eq!(Report::new(&noticed, &run).all.useful, 0.2);

    let unnoticed = by_hand(&requests, Until::Answered, Callers::Leave, false);
    let run = simulate(&unnoticed, &mut Open);
    assert_eq!(slots(&run), [Some((0, 3)), Some((3, 4)), Some((4, 5))]);
    assert_eq!(outcomes(&run), [Left; 3]);
}

#[test]
fn a_million_requests_are_simulated() {
    let scenario = Scenario::named("heavy-tail").unwrap();
    let workload = scenario.build(&source(34.0), 1.2, Callers::LeaveAndSaySo);
    assert!(workload.requests.len() > 1_000_000);
    assert!(figures(AFTER, &workload).useful > 0.9);
}

// ## What comes out

#[test]
fn the_table_shows_every_policy_and_the_image_five() {
    let scenario = Scenario::named("tenants").unwrap();
    let study = |load| {
        let workload = scenario.build(&source(0.02), load, Callers::Stay);
        Study::of(workload, DEFAULT_SEED)
    };
    let studies = [study(1.0), study(2.0)];
    let table = table(&studies[0]);
    let policies = POLICIES.iter().map(|policy| policy.name);
    for name in policies.chain(["the greedy one", "the nine", "bound"]) {
        assert!(table.contains(name), "{name}");
    }
    let image = plot("the > title", &studies);
    for words in [
        "the &gt; title",
        ">this crate<",
        ">ConcurrencyLimit<",
        ">LoadShed<",
        ">HAProxy<",
        ">adaptive LIFO + CoDel<",
        "the greedy one: served in time",
        "the nine: p99 wait",
        "prefers-color-scheme: dark",
    ] {
        assert!(image.contains(words), "{words}");
    }
    // Five lines in the key, and in each of six panels.
    assert_eq!(image.matches("<polyline").count(), 5 * 7);
}

#[test]
fn policies_have_names_of_their_own() {
    let mut names: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), POLICIES.len());
}

#[test]
fn arguments_are_parsed_or_refused_with_what_is_allowed() {
    let parse = |args: &str| Args::parse(args.split_whitespace().map(Into::into));
    let refusal = |args| parse(args).err().unwrap();
    let args = parse(
        "--workload poisson --workload tenants --callers leave --svg DIR --quick --seed 7 --trace x.gz",
    );
    let args = args.unwrap();
    let names: Vec<_> = args
        .scenarios
        .iter()
        .map(|scenario| scenario.name)
        .collect();
    assert_eq!(names, ["poisson", "tenants"]);
    assert_eq!(args.callers, Some(Callers::Leave));
    assert_eq!(
        (args.is_quick, args.seed, args.wants_help),
        (true, 7, false)
    );
    assert_eq!(args.svg.unwrap().to_str(), Some("DIR"));
    assert_eq!(args.trace.unwrap().to_str(), Some("x.gz"));
    assert!(parse("-h").unwrap().wants_help);
    assert_eq!(refusal("--seed"), "--seed needs a value");
    assert_eq!(
        refusal("--callers some"),
        "--callers is \"some\": it must be one of stay, leave, header"
    );
    assert!(refusal("--workload x").contains("conversation, bursty, poisson"));
    assert!(refusal("--seed x").contains("whole number"));
    assert!(refusal("fast").contains("--help"));
    for scenario in SCENARIOS {
        assert!(help().contains(scenario.name));
    }
}
