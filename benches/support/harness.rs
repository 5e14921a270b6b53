//! Timing of several subjects side by side.
//!
//! Two figures from two runs compare the machine with itself at two moments. So there are many short passes, each of
//! which runs every subject once, and a ratio is taken within each pass. What is printed is the median of these ratios,
//! and their quartiles.

use std::hint::black_box;
use std::time::Instant;

/// Passes that warm caches and branch predictors, and are not counted.
const WARM_UP: usize = 3;

/// Whether `cargo bench` runs this program. If not, it is a test that the bench still works: each subject runs once,
/// briefly.
#[must_use]
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// The subjects of one comparison.
pub struct Bench<'a> {
    title: String,
    passes: usize,
    operations: u64,
    has_base: bool,
    subjects: Vec<Subject<'a>>,
    comparisons: Vec<Comparison>,
}

struct Subject<'a> {
    name: String,
    run: Box<dyn FnMut(u64) + 'a>,
    /// Nanoseconds per operation in each pass.
    times: Vec<f64>,
}

struct Comparison {
    subject: usize,
    peer: usize,
    goal: &'static str,
}

impl<'a> Bench<'a> {
    /// A comparison of `passes` passes, in each of which each subject runs `operations` operations.
    #[must_use]
    pub fn new(title: impl Into<String>, passes: usize, operations: u64) -> Self {
        Self {
            title: title.into(),
            passes,
            operations,
            has_base: false,
            subjects: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// What all others do besides, such as the inner service's work: its time is subtracted from theirs.
    ///
    /// # Panics
    ///
    /// If it is not the first subject.
    #[must_use]
    pub fn base(mut self, name: &str, run: impl FnMut(u64) + 'a) -> Self {
        assert!(self.subjects.is_empty(), "the base is the first subject");
        self.has_base = true;
        self.subject(name, run)
    }

    /// One more subject. `run` is given the number of operations.
    #[must_use]
    pub fn subject(mut self, name: &str, run: impl FnMut(u64) + 'a) -> Self {
        self.subjects.push(Subject {
            name: name.to_owned(),
            run: Box::new(run),
            times: Vec::with_capacity(self.passes),
        });
        self
    }

    /// Compares the subject before with `peer`, an earlier one. `goal` is printed beside the ratio.
    ///
    /// # Panics
    ///
    /// If there is no `peer`.
    #[must_use]
    pub fn against(mut self, peer: &str, goal: &'static str) -> Self {
        let names = self.subjects.iter().map(|subject| subject.name.as_str());
        self.comparisons.push(Comparison {
            subject: self.subjects.len() - 1,
            peer: names.clone().position(|name| name == peer).expect(peer),
            goal,
        });
        self
    }

    /// Runs all passes, and prints the times and the ratios.
    pub fn run(mut self) {
        let _ = self.measure();
        if is_measuring() {
            self.print();
        }
    }

    /// Runs all passes. The median time of one operation of each subject, in nanoseconds, less that of the base.
    pub fn measure(&mut self) -> Vec<f64> {
        let (warm_up, passes, operations) = if is_measuring() {
            (WARM_UP, self.passes, self.operations)
        } else {
            (0, 1, (self.operations / 10).max(1))
        };
        for pass in 0..warm_up + passes {
            for index in order(pass, self.subjects.len()) {
                let subject = &mut self.subjects[index];
                let start = Instant::now();
                (subject.run)(black_box(operations));
                let nanos = start.elapsed().as_nanos() as f64 / operations as f64;
                if pass >= warm_up {
                    subject.times.push(nanos);
                }
            }
        }
        (0..self.subjects.len())
            .map(|index| median(self.net(index)))
            .collect()
    }

    fn print(&self) {
        println!("\n{}", self.title);
        for (index, subject) in self.subjects.iter().enumerate() {
            let is_base = self.has_base && index == 0;
            let (time, note) = match is_base {
                true => (median(subject.times.clone()), "  (subtracted below)"),
                false => (median(self.net(index)), ""),
            };
            println!("  {:<44} {time:>9.1} ns{note}", subject.name);
            let own = |comparison: &&Comparison| comparison.subject == index;
            for comparison in self.comparisons.iter().filter(own) {
                self.print_ratio(comparison);
            }
        }
    }

    fn print_ratio(
        &self,
        &Comparison {
            subject,
            peer,
            goal,
        }: &Comparison,
    ) {
        let [low, middle, high] = quartiles(ratios(self.net(subject), self.net(peer)));
        let name = &self.subjects[peer].name;
        print!("      {middle:.2}× {name}  ({low:.2} to {high:.2}");
        if self.has_base {
            let (subject, peer) = (&self.subjects[subject], &self.subjects[peer]);
            let raw = median(ratios(subject.times.clone(), peer.times.clone()));
            print!(", raw {raw:.2}");
        }
        match goal {
            "" => println!(")"),
            goal => println!(")  goal {goal}"),
        }
    }

    /// The times of one subject, each less that of the base in the same pass.
    fn net(&self, index: usize) -> Vec<f64> {
        let times = &self.subjects[index].times;
        if !self.has_base || index == 0 {
            return times.clone();
        }
        let base = &self.subjects[0].times;
        times
            .iter()
            .zip(base)
            .map(|(time, base)| time - base)
            .collect()
    }
}

/// The order of the subjects in a pass. Each pass starts with the next subject; each round of passes goes the other way
/// round, so that a subject does not always run after the same one.
fn order(pass: usize, subjects: usize) -> impl Iterator<Item = usize> {
    let backwards = (pass / subjects) % 2 == 1;
    (0..subjects).map(move |nth| match backwards {
        false => (pass + nth) % subjects,
        true => (pass + subjects - nth) % subjects,
    })
}

fn ratios(times: Vec<f64>, peers: Vec<f64>) -> Vec<f64> {
    times
        .iter()
        .zip(peers)
        .map(|(time, peer)| time / peer)
        .collect()
}

fn median(values: Vec<f64>) -> f64 {
    quartiles(values)[1]
}

/// The lower quartile, the median and the upper quartile.
#[must_use]
pub fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
