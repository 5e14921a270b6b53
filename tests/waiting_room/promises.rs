//! Random runs, each step of them compared with the model.

use proptest::prelude::*;
use tower_triage::Discipline::{self, Deadline, Fair, Fifo};

use tower_triage::admit::Partition;

use super::driver::{
    Driver, Event, Furniture, Sections, crowds, events, furniture, one_lane_events, plain_events,
    sections,
};
use super::wards::{OneLane, TestCapacity, Treats, Wards};

fn run(start: (Furniture, Sections), beds: &[usize], lanes: &[Treats], events: Vec<Event>) {
    run_on::<Wards>(start, beds, lanes, events);
}

fn run_on<C: TestCapacity>(
    (furniture, sections): (Furniture, Sections),
    beds: &[usize],
    lanes: &[Treats],
    events: Vec<Event>,
) {
    let mut driver = Driver::<C>::new(&furniture, sections, beds, lanes);
    events.into_iter().for_each(|event| driver.apply(event));
    driver.everyone_goes();
}

fn any_treats() -> impl Strategy<Value = Treats> + Clone {
    prop::sample::subsequence(vec![0, 1, 2], 0..=3)
}

/// Two lanes have all wards in common or none.
fn apart() -> impl Strategy<Value = Treats> + Clone {
    prop::sample::select(vec![vec![0], vec![1, 2], vec![]])
}

const NO_BOUNDS: Sections = [Partition {
    id: 0,
    max_size: None,
    discipline: None,
}; 3];

const ALL: &[Discipline] = &[Fifo, Deadline, Fair];
const ONE_ORDER: &[Discipline] = &[Fifo, Deadline];

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn on_one_ward_everyone_is_served_as_the_model_says(
        start in (furniture(ALL), sections(ALL)),
        beds in 0usize..4,
        events in events(ALL, 1, 3, Just(vec![0])),
    ) {
        run(start, &[beds], &vec![vec![0]; 3], events);
    }

    #[test]
    fn the_plain_room_serves_as_the_model_says(
        furniture in furniture(ALL),
        beds in prop::array::uniform2(0usize..3),
        events in plain_events(ALL),
    ) {
        run_on::<OneLane>((furniture.plain(Fifo), NO_BOUNDS), &beds, &[vec![0, 1]], events);
    }

    #[test]
    fn a_room_that_turns_plain_and_full_serves_as_the_model_says(
        furniture in furniture(ALL),
        beds in prop::array::uniform2(0usize..3),
        events in one_lane_events(ALL),
    ) {
        run_on::<OneLane>((furniture, NO_BOUNDS), &beds, &[vec![0, 1]], events);
    }

    #[test]
    fn on_wards_that_share_lanes_everyone_is_served_as_the_model_says(
        start in (furniture(ONE_ORDER), sections(ONE_ORDER)),
        beds in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(any_treats(), 4),
        events in events(ONE_ORDER, 3, 4, any_treats()),
    ) {
        run(start, &beds, &lanes, events);
    }

    #[test]
    fn on_wards_of_their_own_tenants_take_turns_as_the_model_says(
        start in (furniture(&[Fair]), sections(ALL)),
        beds in prop::array::uniform3(0usize..3),
        lanes in prop::collection::vec(apart(), 4),
        events in events(ALL, 3, 4, apart()),
    ) {
        run(start, &beds, &lanes, events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 20,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_crowd_is_served_as_the_model_says(
        furniture in furniture(ALL),
        mut sections in sections(ALL),
        beds in 0usize..2,
        events in crowds(ALL, 3, 32),
    ) {
        for section in &mut sections {
            section.max_size = section.max_size.map(|max_size| max_size * 32);
        }
        run((furniture.times(32), sections), &[beds], &vec![vec![0]; 3], events);
    }
}
