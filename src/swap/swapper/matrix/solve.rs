//! The search for the combination of a set that lets a model run at the least cost.
//!
//! The combinations are not written out. In each part of an expression, only the target and the running models are
//! relevant, because the others are neither kept nor stopped. So a part is a list of masks of relevant models. A mask that
//! another one contains is dropped, because it keeps no more models. Most parts have at most one relevant model, and so one
//! mask.

/// A set of models, with one bit for each.
pub(super) type Mask = u128;

/// A part of an expression: one model, or a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum MatrixPart {
    Model(Mask),
    /// The index of a node in the matrix.
    Node(usize),
}

/// A node of an expression, which joins parts.
#[derive(Debug, Clone)]
pub(super) struct MatrixNode {
    /// The models of all parts, for quick checks.
    pub(super) models: Mask,
    pub(super) form: Form,
    pub(super) parts: Vec<MatrixPart>,
}

/// The way in which the parts of a node are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    All,
    OneOf,
    /// A choice of the model that needs the least work.
    OneModel,
}

impl MatrixPart {
    /// Returns all models that the part names.
    pub(super) fn models(self, nodes: &[MatrixNode]) -> Mask {
        match self {
            Self::Model(model) => model,
            Self::Node(node) => nodes[node].models,
        }
    }
}

/// A solver for one target, over all sets of a matrix.
pub(super) struct Solver<'a> {
    nodes: &'a [MatrixNode],
    target: Mask,
    /// The target and the running models, which alone matter.
    relevant: Mask,
    /// The cost of stopping each model, by bit.
    costs: &'a [u64],
    /// The masks of each node, without those that others contain. Empty for nodes that have nothing to do with the
    /// target.
    known: Vec<Vec<Mask>>,
}

impl<'a> Solver<'a> {
    pub(super) fn new(
        nodes: &'a [MatrixNode],
        costs: &'a [u64],
        target: Mask,
        running: Mask,
    ) -> Self {
        let mut solver = Self {
            nodes,
            target,
            relevant: running | target,
            costs,
            known: Vec::with_capacity(nodes.len()),
        };
        // A node comes after its parts, so their masks are known.
        for (node, is_needed) in nodes.iter().zip(needed(nodes, target)) {
            let masks = is_needed.then(|| solver.masks_of(node));
            solver.known.push(masks.unwrap_or_default());
        }
        solver
    }

    /// Returns the least cost of a combination of the part that has the target.
    pub(super) fn least_cost(&self, part: MatrixPart) -> Option<u64> {
        let with_target = self.masks(part).filter(|mask| mask & self.target != 0);
        with_target.map(|mask| self.cost(mask)).min()
    }

    /// Returns the models that stay, by the combination that is written first of those with the target and this cost.
    pub(super) fn first(&self, part: MatrixPart, cost: u64) -> Mask {
        let masks = self.masks(part);
        let mut least = masks.filter(|mask| mask & self.target != 0 && self.cost(*mask) == cost);
        match (least.next(), least.next()) {
            (Some(only), None) => only,
            _ => self.first_of(part, 0, &[0], cost),
        }
    }

    /// Returns the cost of stopping the relevant models outside of the mask.
    fn cost(&self, mask: Mask) -> u64 {
        let stopped = bits(self.relevant & !mask).map(|bit| bit.trailing_zeros() as usize);
        stopped.fold(0, |sum: u64, bit| sum.saturating_add(self.costs[bit]))
    }

    /// Returns the masks of a part, which has one mask if it is a model.
    fn masks(&self, part: MatrixPart) -> impl Iterator<Item = Mask> + Clone + use<'_, 'a> {
        let (one, several) = match part {
            MatrixPart::Model(model) => (Some(model & self.relevant), [].as_slice()),
            MatrixPart::Node(node) => (None, self.known[node].as_slice()),
        };
        one.into_iter().chain(several.iter().copied())
    }

    fn masks_of(
        &self,
        MatrixNode {
            models,
            form,
            parts,
        }: &MatrixNode,
    ) -> Vec<Mask> {
        let relevant = models & self.relevant;
        match form {
            // The mask with the only relevant model contains all others.
            _ if relevant.count_ones() <= 1 => vec![relevant],
            Form::OneModel => bits(relevant).collect(),
            Form::OneOf => largest(parts.iter().flat_map(|&part| self.masks(part))),
            Form::All => {
                // Parts with one mask first, because they multiply nothing.
                let has_one = |&part: &MatrixPart| self.masks(part).nth(1).is_none();
                let (one, several): (Vec<_>, Vec<_>) = parts.iter().copied().partition(has_one);
                let single = one.into_iter().flat_map(|part| self.masks(part));
                let single = single.fold(0, |all, mask| all | mask);
                let several = several.into_iter();
                several.fold(vec![single], |united, part| self.united(&united, part))
            }
        }
    }

    /// Returns all unions of one of `masks` and one of the part's masks.
    fn united(&self, masks: &[Mask], part: MatrixPart) -> Vec<Mask> {
        let all = masks.iter();
        largest(all.flat_map(|one| self.masks(part).map(move |other| one | other)))
    }

    /// Returns the [first](Self::first) choice, if the parts before have `chosen`, and the parts behind may choose one of
    /// `rest`.
    fn first_of(&self, part: MatrixPart, chosen: Mask, rest: &[Mask], cost: u64) -> Mask {
        let MatrixPart::Node(node) = part else {
            return chosen | part.models(self.nodes) & self.relevant;
        };
        let MatrixNode { form, parts, .. } = &self.nodes[node];
        if *form == Form::All {
            // The choices behind each part, the last part's first.
            let mut behind = vec![rest.to_vec()];
            for &part in parts[1..].iter().rev() {
                behind.push(self.united(&behind[behind.len() - 1], part));
            }
            let parts = parts.iter().zip(behind.iter().rev());
            return parts.fold(chosen, |chosen, (&part, rest)| {
                self.first_of(part, chosen, rest, cost)
            });
        }
        let is_possible = |part: &MatrixPart| {
            self.masks(*part).any(|mask| {
                let mut all = rest.iter().map(|rest| chosen | mask | rest);
                all.any(|all| all & self.target != 0 && self.cost(all) == cost)
            })
        };
        let first = parts.iter().copied().find(is_possible);
        // Always found, because the cost is of a combination.
        first.map_or(chosen, |part| self.first_of(part, chosen, rest, cost))
    }
}

/// Tells for each node if the target is in it, or in a node that it is a part of.
fn needed(nodes: &[MatrixNode], target: Mask) -> Vec<bool> {
    let mut needed: Vec<bool> = nodes.iter().map(|node| node.models & target != 0).collect();
    // A node comes after its parts, so all nodes that a node is a part of were seen before it.
    for (i, node) in nodes.iter().enumerate().rev() {
        if needed[i] {
            let parts = node.parts.iter();
            parts.for_each(|part| match *part {
                MatrixPart::Node(part) => needed[part] = true,
                MatrixPart::Model(_) => {}
            });
        }
    }
    needed
}

/// Returns the bits of a mask, one mask for each. Ends because each round clears one.
fn bits(mut mask: Mask) -> impl Iterator<Item = Mask> {
    std::iter::from_fn(move || {
        let bit = mask & mask.wrapping_neg();
        mask ^= bit;
        (bit != 0).then_some(bit)
    })
}

/// Returns the masks that no other contains, each once.
fn largest(masks: impl Iterator<Item = Mask>) -> Vec<Mask> {
    let mut kept: Vec<Mask> = Vec::with_capacity(4); // enough for most
    for mask in masks {
        if kept.iter().any(|&other| mask & !other == 0) {
            continue;
        }
        kept.retain(|&other| mask | other != mask);
        kept.push(mask);
    }
    kept
}

/// Returns the class of each model: the first model that has the same plan. `bits` has the bit of each model.
///
/// A class has the models of one list, `a | b | c`, that appear nowhere else, if each set contains the list at most once.
/// Then a combination with one of them has no other model of the list, and the rest of it is the same for all of them.
/// Models in no set are a class, too.
pub(super) fn plan_classes(nodes: &[MatrixNode], sets: &[MatrixPart], bits: &[Mask]) -> Vec<u32> {
    let mut lists: Vec<Mask> = (0..nodes.len())
        .filter(|&node| nodes[node].form == Form::OneModel)
        .filter(|&node| sets.iter().all(|&set| times_met(node, set, nodes) <= 1))
        .map(|node| nodes[node].models)
        .collect();
    let parts = nodes.iter().flat_map(|node| &node.parts).chain(sets);
    let (mut once, mut twice) = (0, 0);
    for part in parts {
        if let MatrixPart::Model(model) = part {
            twice |= once & model;
            once |= model;
        }
    }
    lists.iter_mut().for_each(|list| *list &= !twice);
    let stands_for = |one: Mask, other: Mask| {
        one == other
            || lists
                .iter()
                .any(|list| list & one != 0 && list & other != 0)
    };
    let first = |&bit: &Mask| bits.iter().position(|&other| stands_for(other, bit));
    let first = bits.iter().map(first);
    first
        .map(|first| first.unwrap_or_default() as u32)
        .collect()
}

/// Returns how many times a set contains a node, over all ways through it.
fn times_met(node: usize, set: MatrixPart, nodes: &[MatrixNode]) -> u32 {
    let MatrixPart::Node(top) = set else { return 0 };
    let mut times = vec![0_u32; nodes.len()];
    times[top] = 1;
    // From the top down, because a node comes after its parts.
    for upper in (0..=top).rev() {
        for part in &nodes[upper].parts {
            if let MatrixPart::Node(lower) = *part {
                times[lower] = times[lower].saturating_add(times[upper]);
            }
        }
    }
    times[node]
}
