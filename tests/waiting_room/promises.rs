//! Random runs, compared with the model after each event.

use proptest::prelude::*;
use tower_triage::Discipline::{self, Deadline, Fair, Fifo};
use tower_triage::admit::Partition;

use super::driver::{
    Driver, Event, Partitions, RoomOptions, bursts, events, in_levels, one_lane_events, partitions,
    plain_events, room_options,
};
use super::pools::{InLanes, Serves, TestCapacity, TestPools};

fn run(start: (RoomOptions, Partitions), slots: &[usize], lanes: &[Serves], events: Vec<Event>) {
    run_on::<TestPools>(start, slots, lanes, events);
}

fn run_on<C: TestCapacity>(
    (options, partitions): (RoomOptions, Partitions),
    slots: &[usize],
    lanes: &[Serves],
    events: Vec<Event>,
) {
    let mut driver = Driver::<C>::new(&options, partitions, slots, lanes);
    events.into_iter().for_each(|event| driver.apply(event));
    driver.finish();
}

fn any_serves() -> impl Strategy<Value = Serves> + Clone {
    prop::sample::subsequence(vec![0, 1, 2], 0..=3)
}

/// Any two lanes have all pools in common, or none.
fn apart() -> impl Strategy<Value = Serves> + Clone {
    prop::sample::select(vec![vec![0], vec![1, 2], vec![]])
}

const NO_BOUNDS: Partitions = [Partition::new(0); 3];

const ALL: &[Discipline] = &[Fifo, Deadline, Fair];
const ONE_ORDER: &[Discipline] = &[Fifo, Deadline];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_pool_serves_as_the_model_says(
        start in (room_options(ALL), partitions(ALL)),
        slots in 0usize..4,
        events in events(ALL, 1, 3, Just(vec![0])),
    ) {
        run(start, &[slots], &vec![vec![0]; 3], events);
    }

    #[test]
    fn levels_and_lanes_serve_one_lane_as_the_model_says(
        options in room_options(ALL),
        slots in prop::array::uniform2(0usize..3),
        events in plain_events(ALL),
    ) {
        let start = (options.plain(Fifo), NO_BOUNDS);
        run_on::<InLanes>(start.clone(), &slots, &[vec![0, 1]], events.clone());
        run(start, &slots, &[vec![0, 1]], events);
    }

    #[test]
    fn room_that_changes_its_order_serves_as_the_model_says(
        options in room_options(ALL),
        slots in prop::array::uniform2(0usize..3),
        events in one_lane_events(ALL),
    ) {
        run((options, NO_BOUNDS), &slots, &[vec![0, 1]], events);
    }

    #[test]
    fn lanes_that_come_and_go_are_served_as_the_model_says(
        options in room_options(ALL),
        slots in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(any_serves(), 3),
        events in events(&[Fifo], 3, 3, any_serves()),
    ) {
        run((options.plain(Fifo), NO_BOUNDS), &slots, &lanes, in_levels(events));
    }

    #[test]
    fn shared_pools_serve_as_the_model_says(
        start in (room_options(ONE_ORDER), partitions(ONE_ORDER)),
        slots in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(any_serves(), 4),
        events in events(ONE_ORDER, 3, 4, any_serves()),
    ) {
        run(start, &slots, &lanes, events);
    }

    #[test]
    fn separate_pools_share_fairly_as_the_model_says(
        start in (room_options(&[Fair]), partitions(ALL)),
        slots in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(apart(), 4),
        events in events(ALL, 3, 4, apart()),
    ) {
        run(start, &slots, &lanes, events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 20,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn bursts_are_served_as_the_model_says(
        options in room_options(ALL),
        mut partitions in partitions(ALL),
        slots in 0usize..2,
        events in bursts(ALL, 3, 32),
    ) {
        for partition in &mut partitions {
            partition.max_size = partition.max_size.map(|max_size| max_size * 32);
        }
        run((options.times(32), partitions), &[slots], &vec![vec![0]; 3], events);
    }
}
