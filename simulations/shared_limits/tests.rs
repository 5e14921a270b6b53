//! The simulation, with fewer gateways.

use crate::simulation::{Figures, SECOND, Setting, simulate};

fn small() -> Setting {
    Setting {
        gateways: 12,
        endpoints: 25,
        // A gateway has a twelfth of the slots: they must not be lost for half of the time between two deaths.
        lease: 3 * SECOND,
        measured: 180,
        ..Setting::default()
    }
}

fn assert_fine(setting: &Setting, figures: &Figures) {
    assert!(figures.most <= setting.slots, "{figures:?}");
    assert!(figures.in_use >= 0.95, "{figures:?}");
}

#[test]
fn endpoints_are_full_and_never_beyond_their_slots() {
    let setting = small();
    let figures = simulate(&setting);
    assert_fine(&setting, &figures);
    assert!(
        figures.least_busy > 0.5 && figures.busiest > 0.3,
        "{figures:?}"
    );
}

#[test]
fn fewer_slots_than_gateways_are_full_too() {
    let setting = Setting {
        slots: 2,
        ..small()
    };
    assert_fine(&setting, &simulate(&setting));
}

#[test]
fn with_little_load_nearly_all_are_served_at_few_questions() {
    let setting = Setting {
        load: 0.5,
        lease: 30 * SECOND,
        death: 3_600 * SECOND,
        ..small()
    };
    let figures = simulate(&setting);
    assert!(figures.most <= setting.slots, "{figures:?}");
    assert!(
        figures.least_busy > 0.99 && figures.busiest > 0.99,
        "{figures:?}"
    );
    assert!(figures.questions < 4.0 * figures.served, "{figures:?}");
}
