//! The generated workloads have the shapes of the recorded ones, and recorded ones are read as they are.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::scenarios::{DEFAULT_SEED, SCENARIOS, Scenario, Source};
use super::trace::{Row, parse, read};
use super::{Callers, Until, Workload};

const GENERATED: Source = Source {
    seed: DEFAULT_SEED,
    scale: 1.0,
    trace: None,
};

fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    let error = (value / expected - 1.0).abs();
    assert!(error <= tolerance, "{what}: {value:.3}, not {expected}");
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The variance over the square of the mean, and over the mean.
fn dispersion(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = squares / values.len() as f64;
    (variance / mean.powi(2), variance / mean)
}

/// The number of arrivals in each interval of so many seconds.
fn counts(rows: &[Row], seconds: f64) -> Vec<f64> {
    let last = rows.last().unwrap().at;
    let mut counts = vec![0.0; (last / seconds) as usize];
    for row in rows {
        // The last interval is not whole.
        if let Some(count) = counts.get_mut((row.at / seconds) as usize) {
            *count += 1.0;
        }
    }
    counts
}

fn rate(rows: &[Row]) -> f64 {
    rows.len() as f64 / rows.last().unwrap().at
}

/// The coefficient of variation of the times between arrivals.
fn gap_variation(rows: &[Row]) -> f64 {
    let gaps: Vec<f64> = rows.windows(2).map(|two| two[1].at - two[0].at).collect();
    dispersion(&gaps).0.sqrt()
}

/// The index of dispersion: the variance over the mean of the arrivals per interval.
fn index_of_dispersion(rows: &[Row], seconds: f64) -> f64 {
    dispersion(&counts(rows, seconds)).1
}

/// The most arrivals of a minute, over the mean.
fn peak_minute(rows: &[Row]) -> f64 {
    let counts = counts(rows, 60.0);
    counts.iter().copied().fold(0.0, f64::max) / mean(&counts)
}

fn assert_quantiles(what: &str, rows: &[Row], of: fn(&Row) -> u32, expected: [f64; 4]) {
    let mut sizes: Vec<u32> = rows.iter().map(of).collect();
    sizes.sort_unstable();
    for (rank, expected) in [0.1, 0.5, 0.9, 0.99].into_iter().zip(expected) {
        let value = f64::from(sizes[(rank * sizes.len() as f64) as usize]);
        assert_near(&format!("{what}, rank {rank}"), value, expected, 0.1);
    }
}

fn correlation(rows: &[Row]) -> f64 {
    let input: Vec<f64> = rows.iter().map(|row| row.input_tokens.into()).collect();
    let output: Vec<f64> = rows.iter().map(|row| row.output_tokens.into()).collect();
    let (mean_in, mean_out) = (mean(&input), mean(&output));
    let products = input.iter().zip(&output);
    let covariance: Vec<f64> = products
        .map(|(i, o)| (i - mean_in) * (o - mean_out))
        .collect();
    let deviation = |values: &[f64]| dispersion(values).0.sqrt() * mean(values);
    mean(&covariance) / (deviation(&input) * deviation(&output))
}

#[test]
fn the_conversation_has_the_shape_of_the_trace() {
    let rows = GENERATED.conversation();
    assert_near("requests per second", rate(&rows), 5.53, 0.01);
    assert_near("gap variation", gap_variation(&rows), 1.09, 0.03);
    let dispersion = index_of_dispersion(&rows, 1.0);
    assert_near("dispersion in 1 s", dispersion, 1.4, 0.1);
    let input = [207.0, 1020.0, 2735.0, 4142.0];
    assert_quantiles("input", &rows, |row| row.input_tokens, input);
    let output = [54.0, 129.0, 424.0, 601.0];
    assert_quantiles("output", &rows, |row| row.output_tokens, output);
    assert_near("correlation", correlation(&rows), -0.11, 0.3);
}

#[test]
fn the_bursty_workload_has_the_shape_of_the_trace() {
    let rows = GENERATED.bursty();
    assert_near("requests per second", rate(&rows), 2.57, 0.01);
    assert_near("gap variation", gap_variation(&rows), 13.0, 0.15);
    let dispersion = index_of_dispersion(&rows, 1.0);
    assert_near("dispersion in 1 s", dispersion, 13.0, 0.15);
    assert_near("peak minute", peak_minute(&rows), 4.2, 0.15);
    let input = [147.0, 1469.0, 5194.0, 7436.0];
    assert_quantiles("input", &rows, |row| row.input_tokens, input);
    let output = [7.0, 13.0, 55.0, 252.0];
    assert_quantiles("output", &rows, |row| row.output_tokens, output);
}

fn build(name: &str, load: f64) -> Workload {
    let scenario = Scenario::named(name).unwrap();
    scenario.build(&GENERATED, load, Callers::Stay)
}

#[test]
fn the_conversation_has_20_16_and_12_slots() {
    for (load, slots) in [(1.2, 20), (1.5, 16), (2.0, 12)] {
        let workload = build("conversation", load);
        assert_eq!(workload.slots, slots);
        assert_near("load", workload.load(), load, 0.03);
        assert_near("service", workload.mean_service().as_secs_f64(), 4.39, 0.03);
    }
}

#[test]
fn every_scenario_has_the_load_that_it_is_built_for() {
    for scenario in SCENARIOS {
        for &load in scenario.loads {
            let workload = scenario.build(&GENERATED, load, Callers::Stay);
            // Slots are whole, and the bursty workload has few.
            assert_near(scenario.name, workload.load(), load, 0.12);
            let arrivals = workload.requests.iter().map(|request| request.arrival);
            assert!(arrivals.is_sorted(), "{}", scenario.name);
        }
    }
}

#[test]
fn levels_and_tenants_have_their_shares() {
    let share = |workload: &Workload, group: usize| {
        let contains = workload.groups[group].contains;
        let requests = workload.requests.iter();
        requests.filter(|request| contains(request)).count() as f64 / workload.requests.len() as f64
    };
    assert_near("high", share(&build("levels", 1.5), 0), 0.2, 0.05);
    let tenants = build("tenants", 1.5);
    assert_near("the greedy one", share(&tenants, 0), 0.5, 0.05);
    for tenant in 1..10 {
        let requests = tenants.requests.iter();
        let sent = requests.filter(|request| request.tenant == tenant).count();
        let share = sent as f64 / tenants.requests.len() as f64;
        assert_near("one of nine", share, 0.5 / 9.0, 0.1);
    }
}

#[test]
fn on_off_bursts_are_above_the_mean_and_heavy_tails_are_heavy() {
    let bursts = build("on-off", 1.0);
    let mut seconds = vec![0; bursts.duration.as_secs() as usize + 1];
    for request in &*bursts.requests {
        seconds[request.arrival.as_secs() as usize] += 1;
    }
    // 40 in a second on average; 100 in one of a burst, 20 in another.
    let in_bursts: u32 = seconds.iter().filter(|count| **count > 55).sum();
    let share = f64::from(in_bursts) / bursts.requests.len() as f64;
    assert_near("share in bursts", share, 0.625, 0.03);

    let heavy = build("heavy-tail", 1.0);
    assert_near("mean", heavy.mean_service().as_secs_f64(), 0.2, 0.05);
    let mut services: Vec<f64> = heavy
        .requests
        .iter()
        .map(|request| request.service.as_secs_f64())
        .collect();
    services.sort_by(f64::total_cmp);
    assert_near("median", services[services.len() / 2], 0.111, 0.03);
    assert_near("longest", *services.last().unwrap(), 20.0, 0.3);
    assert_eq!(heavy.until, Until::Started);
}

const CSV: &str = "\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.5000000,374,44
2023-11-17 00:00:01.2500000,396,109
2023-11-16 23:59:59.0000000,7,1
";

fn expected() -> Vec<Row> {
    [(0.0, 7, 1), (0.5, 374, 44), (2.25, 396, 109)]
        .map(|(at, input_tokens, output_tokens)| Row {
            at,
            input_tokens,
            output_tokens,
        })
        .into()
}

#[test]
fn a_trace_is_sorted_and_begins_at_0() {
    assert_eq!(parse(CSV.as_bytes()).unwrap(), expected());
    // Columns in another order, seconds in place of dates, windows line ends.
    let other = "GeneratedTokens,TIMESTAMP,x,ContextTokens\r\n44,10.5,,374\r\n1,10,?,7\r\n109,12.25,,396\r\n";
    assert_eq!(parse(other.as_bytes()).unwrap(), expected());
}

#[test]
fn a_gzipped_trace_is_unpacked() {
    let folder = std::env::temp_dir().join(format!("overload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("trace.csv.gz");
    let mut packed = GzEncoder::new(std::fs::File::create(&path).unwrap(), Compression::fast());
    packed.write_all(CSV.as_bytes()).unwrap();
    packed.finish().unwrap();
    let rows = read(&path);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(rows.unwrap(), expected());
}

#[test]
fn a_bad_trace_is_refused_with_the_place() {
    let refusal = |csv: &str| parse(csv.as_bytes()).unwrap_err().to_string();
    assert_eq!(refusal(""), "empty");
    assert_eq!(refusal("a,b\n"), "no column TIMESTAMP, but [\"a\", \"b\"]");
    let header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    assert_eq!(refusal(header), "no request");
    assert_eq!(
        refusal(&format!("{header}1,2,3\n4,x,6\n")),
        "line 3 is not a request: \"4,x,6\""
    );
    assert!(refusal(&format!("{header}2023-11-16,2,3")).starts_with("line 2"));
}
