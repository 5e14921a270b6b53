//! The conformance suite of stores: what [`Store`] promises, as tests for any store.
//!
//! A store has a [`Harness`], and [`conformance!`](crate::conformance!) makes a `#[test]` of each promise. The name of a test
//! is the promise. Times are multiples of [`Harness::UNIT`], and what happens by itself is waited for, never expected at a
//! certain time.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tokio::runtime::{Builder, Runtime};
//! use tower_triage_durable::conformance::Harness;
//! use tower_triage_durable::{Store, StoreConfig, conformance};
//! use tower_triage_embedded::EmbeddedStore;
//!
//! struct InMemory(Arc<EmbeddedStore>);
//!
//! impl Harness for InMemory {
//!     const UNIT: Duration = Duration::from_secs(1);
//!     const IS_EXACT: bool = true;
//!
//!     fn runtime() -> Runtime {
//!         let mut runtime = Builder::new_current_thread();
//!         runtime.enable_all().start_paused(true).build().unwrap()
//!     }
//!
//!     async fn open(config: StoreConfig) -> Self {
//!         Self(Arc::new(EmbeddedStore::in_memory(config).unwrap()))
//!     }
//!
//!     fn store(&self) -> Arc<dyn Store> {
//!         self.0.clone()
//!     }
//!
//!     async fn crash(&mut self) {
//!         unreachable!("it does not survive its process")
//!     }
//! }
//!
//! conformance!(InMemory: streams, operate, webhooks, key_values, drain, stored_bytes, paused_clock);
//! ```

mod crash;
mod ending;
mod enqueue;
mod limits;
mod lists;
mod order;
mod pauses;
mod retention;
mod running;
mod streams;
mod support;
mod totals;
mod values;
mod waits;
mod webhooks;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{Store, StoreConfig};
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::time::timeout;

pub use self::support::*;
pub use self::{
    crash::*, ending::*, enqueue::*, limits::*, lists::*, order::*, pauses::*, retention::*,
    running::*, streams::*, totals::*, values::*, waits::*, webhooks::*,
};

/// A store under test.
pub trait Harness: Sized + 'static {
    /// A time that the store tells from none and from twice that.
    const UNIT: Duration;
    /// `true` if the order within a level is exact.
    const IS_EXACT: bool;

    /// Returns the runtime that a test runs in, with a paused clock if the store goes by it.
    fn runtime() -> Runtime;

    /// Opens an empty store.
    fn open(config: StoreConfig) -> impl Future<Output = Self>;

    /// Returns the store.
    fn store(&self) -> Arc<dyn Store>;

    /// Ends all processes of the store without a word to them, starts one again, and waits until it has found out which
    /// workers are lost.
    fn crash(&mut self) -> impl Future<Output = ()>;
}

/// Makes a test of each promise of [`Store`](crate::Store) for a [`Harness`](crate::conformance::Harness).
///
/// Behind the harness are the abilities that the store has: `streams`, `operate`, `webhooks`, `key_values`, `drain`; `stored_bytes`
/// if it counts the bytes of tenants; `crashes` if it outlives its processes; `paused_clock` for what takes minutes, if it goes by
/// Tokio's clock. A test fails if the store has an ability that is not named. With `; at_once name`, one test of this name checks
/// all promises side by side, for stores whose beginning takes long.
#[macro_export]
macro_rules! conformance {
    ($harness:ty $(: $($ability:ident),+)?) => {
        $crate::conformance! { @collect [@tests $harness:] [] core $($($ability)+)? }

        $crate::conformance! { @abilities $harness: $($($ability)+)? }
    };
    ($harness:ty $(: $($ability:ident),+)?; at_once $name:ident) => {
        $crate::conformance! { @collect [@at_once $name $harness:] [] core $($($ability)+)? }

        $crate::conformance! { @abilities $harness: $($($ability)+)? }
    };
    (@abilities $harness:ty: $($ability:ident)*) => {
        #[test]
        fn no_other_ability_is_offered() {
            $crate::conformance::check_abilities::<$harness>(&[$(stringify!($ability)),*]);
        }
    };
    (@collect $then:tt [$($promise:ident,)*] core $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            the_same_name_is_stored_once,
            a_key_of_the_same_request_returns_it,
            a_key_of_another_request_is_refused,
            a_key_is_its_tenants_alone,
            a_key_is_kept_until_its_request_is_forgotten,
            a_full_store_refuses_until_one_ends,
            a_full_tenant_refuses_only_its_own,
            a_known_request_is_returned_by_a_full_store,
            an_unknown_request_has_nothing,
            a_more_urgent_level_goes_first,
            requests_of_a_level_go_in_their_order,
            a_fair_order_alternates_between_tenants,
            a_queue_is_taken_from_alone,
            a_delayed_request_begins_later,
            the_backlog_names_the_head_of_each_queue,
            an_outcome_is_kept,
            a_status_of_400_and_more_has_failed,
            a_failure_without_a_response_has_its_reason,
            a_called_request_is_processing,
            the_first_outcome_stands,
            an_outcome_of_an_old_attempt_has_no_effect,
            a_retried_attempt_begins_again,
            a_retried_attempt_waits_for_its_backoff,
            an_attempt_that_does_not_count_is_not_counted,
            many_workers_never_take_the_same_request,
            a_waiting_request_is_cancelled_at_once,
            a_running_request_is_stopped_by_its_cancellation,
            an_ended_request_is_not_cancelled,
            a_delayed_request_is_cancelled,
            a_request_that_never_began_is_aborted_at_its_deadline,
            a_running_request_is_stopped_at_its_deadline,
            a_deadline_that_was_met_changes_nothing,
            an_attempt_that_is_over_is_told_to_stop,
            an_end_wakes_all_that_wait_for_it,
            an_end_is_never_missed_by_a_racing_wait,
            a_wait_may_begin_before_its_request,
            a_wait_returns_the_request_as_it_ended,
            a_change_of_the_backlog_is_never_missed,
            a_dropped_wait_leaves_the_others,
            no_more_run_than_all_or_a_queue_may,
            others_pass_a_tenant_at_its_limit,
            an_ended_request_is_forgotten_after_its_retention,
            a_request_that_has_not_ended_is_kept,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] streams $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            pieces_are_read_as_they_come,
            pieces_are_read_after_the_end,
            no_piece_is_missed_by_a_racing_reader,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] operate $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            positions_count_those_that_go_before,
            depths_count_waiting_and_running_requests,
            a_delay_is_no_part_of_an_age,
            totals_count_each_end_once,
            a_failed_request_is_retried_by_hand,
            a_full_store_takes_back_a_request_that_is_retried_by_hand,
            only_a_failed_request_is_retried_by_hand,
            a_list_is_newest_first_and_in_pages,
            a_list_is_of_one_tenant_or_status,
            unlisted_requests_are_in_no_list,
            a_paused_queue_is_not_taken_from,
            a_paused_tenant_lets_others_pass,
            a_paused_store_is_not_taken_from,
            a_pause_ends_by_itself,
            a_pause_of_the_same_scope_is_replaced,
            a_limit_holds_behind_a_pause_of_its_tenant,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] webhooks $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            a_webhook_is_due_at_the_end,
            a_webhook_knows_the_retries_of_its_request,
            a_webhook_is_put_off,
            a_request_is_kept_until_its_webhook_is_settled,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] key_values $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            values_are_kept_under_their_keys,
            values_are_read_in_pages,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] drain $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            a_request_is_stored_as_it_was_given,
            a_known_request_is_found_without_storing_it,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] stored_bytes $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            the_bytes_of_a_tenant_count_until_they_are_forgotten,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] crashes $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            what_waits_survives_a_crash,
            what_ran_has_failed_after_a_crash,
            what_ran_is_retried_after_a_crash,
            totals_count_what_lost_its_worker,
            a_lease_of_a_dead_worker_has_no_effect,
            outcomes_and_keys_survive_a_crash,
            values_survive_a_crash,
            pauses_survive_a_crash,
            a_closed_store_gives_back_what_was_not_called,
        ] $($rest)* }
    };
    (@collect $then:tt [$($promise:ident,)*] paused_clock $($rest:ident)*) => {
        $crate::conformance! { @collect $then [
            $($promise,)*
            a_webhook_is_due_again_unless_settled,
        ] $($rest)* }
    };
    (@collect [$($then:tt)*] [$($promise:ident,)*]) => {
        $crate::conformance! { $($then)* $($promise,)* }
    };
    (@at_once $test:ident $harness:ty: $($name:ident,)*) => {
        #[test]
        fn $test() {
            $crate::conformance::run_together::<$harness>(::std::vec![
                $(::std::boxed::Box::pin($crate::conformance::$name::<$harness>()),)*
            ]);
        }
    };
    (@tests $harness:ty: $($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::run::<$harness, _>($crate::conformance::$name::<$harness>());
            }
        )*
    };
}

/// Checks that a store offers the abilities that are listed, and no other one.
#[doc(hidden)]
pub fn check_abilities<H: Harness>(listed: &[&str]) {
    run::<H, _>(async {
        let harness = H::open(StoreConfig::default()).await;
        let store = harness.store();
        for (ability, is_offered) in [
            ("streams", store.streams().is_some()),
            ("operate", store.operate().is_some()),
            ("webhooks", store.webhooks().is_some()),
            ("key_values", store.key_values().is_some()),
            ("drain", store.drain().is_some()),
        ] {
            assert_eq!(listed.contains(&ability), is_offered, "{ability}");
        }
    });
}

/// Runs all promises side by side.
#[doc(hidden)]
pub fn run_together<H: Harness>(promises: Vec<Pin<Box<dyn Future<Output = ()>>>>) {
    run::<H, _>(async { _ = join_all(promises).await });
}

/// Runs a test to its end, within ten minutes of its clock.
#[doc(hidden)]
pub fn run<H: Harness, F: Future<Output = ()>>(test: F) {
    let runtime = H::runtime();
    let result = runtime.block_on(async { timeout(Duration::from_secs(600), test).await });
    result.expect("the test waits for something that does not happen");
    runtime.shutdown_background();
}
