//! Configuration files: each is usable, or its error says where the mistake is.

#[test]
fn a_file_is_usable_or_its_mistake_has_a_place() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            let runtime = super::runtime(); // a router starts tasks
            let _entered = runtime.enter();
            if let Err(error) = gateway_config::check(text) {
                let place = error.strip_prefix("/nonexistent/gateway.toml: line ");
                let place = place.unwrap_or_else(|| panic!("no line: {error}"));
                let number = place.split(|c: char| !c.is_ascii_digit()).next();
                let number = number.and_then(|number| number.parse::<usize>().ok());
                let lines = text.matches('\n').count() + 1;
                assert!(
                    number.is_some_and(|it| (1..=lines).contains(&it)),
                    "{error}"
                );
                assert!(!error.contains('\n'), "{error}");
            }
        });
}
