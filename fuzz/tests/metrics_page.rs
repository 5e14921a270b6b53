//! The metrics pages of engines.

use tower_triage::fuzz::engine_load;

#[test]
fn a_page_has_a_load_that_can_be_used() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let page = String::from_utf8_lossy(input);
            let Some(load) = engine_load(&page) else {
                return;
            };
            let values = [load.waiting, load.cache_usage];
            assert!(values.iter().any(Option::is_some));
            for value in values.into_iter().flatten() {
                assert!(value >= 0.0, "{load:?}");
            }
            let other_lines = format!("# TYPE x counter\n{page}\nvllm:num_requests_running 7\n");
            assert_eq!(engine_load(&other_lines), Some(load));
        });
}
