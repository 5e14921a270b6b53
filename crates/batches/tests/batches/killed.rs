//! A batch in a process that is killed.
//!
//! The test starts this program again, for one ignored test that is the child's part.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use tower_triage_durable::StoreConfig;
use tower_triage_embedded::EmbeddedStore;

use crate::support::{World, lines, with_levels};

/// The folder, for the child.
const FOLDER: &str = "DURABLE_TEST_FOLDER";
const LINES: usize = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of a_killed_process_runs_no_line_twice"]
async fn runs_a_batch() {
    let folder = std::env::var_os(FOLDER).expect("this is the child's part of a test");
    let store = EmbeddedStore::open(PathBuf::from(folder), with_levels(StoreConfig::default()));
    let world = World::over(Arc::new(store.unwrap()), Semaphore::MAX_PERMITS);
    world.backend.print();
    let batches = world.get("/v1/batches").await;
    let id = match batches["data"][0]["id"].as_str() {
        Some(id) => id.to_owned(),
        None => world.batch(&lines(LINES as u64)).await,
    };
    let batch = world.until(&id, "completed").await;
    for file in ["output_file_id", "error_file_id"] {
        if batch[file].is_string() {
            for line in world.lines(&batch[file]).await {
                println!("{file} {line}");
            }
        }
    }
    println!("counts {}", batch["request_counts"]);
}

fn start(folder: &Path) -> (Child, impl Iterator<Item = (String, String)> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed::runs_a_batch",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let lines = lines.map_while(Result::ok).filter_map(|line| {
        let (word, rest) = line.split_once(' ')?;
        Some((word.to_owned(), rest.to_owned()))
    });
    (child, lines)
}

#[test]
fn a_killed_process_runs_no_line_twice() {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("batches-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut started = Vec::new();
    let (mut child, said) = start(&folder);
    for (word, rest) in said {
        if word == "started" {
            started.push(rest);
        }
        if started.len() == LINES / 2 {
            child.kill().unwrap(); // the lines that it has written still come
        }
    }
    child.wait().unwrap();
    let (mut ended, mut lost, mut counts) = (HashSet::new(), 0, Value::Null);
    let (mut child, said) = start(&folder);
    for (word, rest) in said {
        match &*word {
            "started" => started.push(rest),
            "output_file_id" | "error_file_id" => {
                let line: Value = serde_json::from_str(&rest).unwrap();
                ended.insert(line["custom_id"].as_str().unwrap().to_owned());
                if word == "error_file_id" {
                    assert_eq!(line["error"]["code"], "worker_lost");
                    lost += 1;
                }
            }
            "counts" => counts = serde_json::from_str(&rest).unwrap(),
            _ => {}
        }
    }
    assert!(child.wait().unwrap().success());
    let _ = std::fs::remove_dir_all(&folder);
    let distinct: HashSet<_> = started.iter().collect();
    assert_eq!(distinct.len(), started.len(), "no line was started twice");
    assert_eq!(ended.len(), LINES);
    // At most what ran in its 8 slots when it was killed.
    assert!(lost <= 8, "{lost}");
    assert_eq!(counts["completed"], LINES - lost);
}
