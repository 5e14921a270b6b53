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
    /// The masks of each node, once they are known, without those that others contain.
    known: Vec<Option<Vec<Mask>>>,
}

impl<'a> Solver<'a> {
    pub(super) fn new(
        nodes: &'a [MatrixNode],
        costs: &'a [u64],
        target: Mask,
        running: Mask,
    ) -> Self {
        Self {
            nodes,
            target,
            relevant: running | target,
            costs,
            known: vec![None; nodes.len()],
        }
    }

    /// Returns the least cost of a combination of the part that has the target.
    pub(super) fn least_cost(&mut self, part: MatrixPart) -> Option<u64> {
        if self.relevant_models(part) & self.target == 0 {
            return None;
        }
        self.learn(part);
        let with_target = self.masks(part).filter(|mask| mask & self.target != 0);
        with_target.map(|mask| self.cost(mask)).min()
    }

    /// Returns the models that stay, by the combination that is written first of those with the target and this cost.
    pub(super) fn first(&mut self, part: MatrixPart, cost: u64) -> Mask {
        self.learn(part);
        let masks = self.masks(part);
        let mut least = masks.filter(|mask| mask & self.target != 0 && self.cost(*mask) == cost);
        match (least.next(), least.next()) {
            (Some(only), None) => only,
            _ => self.first_of(part, 0, &[0], cost),
        }
    }

    /// Returns the cost of stopping the relevant models outside of the mask.
    fn cost(&self, mask: Mask) -> u64 {
        let costs =
            bits(self.relevant & !mask).map(|bit| self.costs[bit.trailing_zeros() as usize]);
        costs.fold(0, u64::saturating_add)
    }

    fn relevant_models(&self, part: MatrixPart) -> Mask {
        part.models(self.nodes) & self.relevant
    }

    /// Returns the node of a part that may have several masks. With at most one relevant model, a part has one mask.
    fn several(&self, part: MatrixPart) -> Option<usize> {
        match part {
            MatrixPart::Node(node) if self.relevant_models(part).count_ones() > 1 => Some(node),
            _ => None,
        }
    }

    /// Returns the masks of a part, which have to be [learned](Self::learn) if there may be several.
    fn masks(&self, part: MatrixPart) -> impl Iterator<Item = Mask> + Clone + use<'_, 'a> {
        let (one, several) = match self.several(part) {
            Some(node) => (None, self.known[node].as_deref().unwrap_or_default()),
            None => (Some(self.relevant_models(part)), [].as_slice()),
        };
        one.into_iter().chain(several.iter().copied())
    }

    /// Finds the masks of a part and of all its parts. Ends because a set is never a part of itself.
    fn learn(&mut self, part: MatrixPart) {
        let Some(node) = self.several(part) else {
            return;
        };
        if self.known[node].is_some() {
            return;
        }
        let nodes = self.nodes;
        let MatrixNode { form, parts, .. } = &nodes[node];
        let masks = match form {
            Form::OneModel => bits(self.relevant_models(part)).collect(),
            Form::OneOf => {
                parts.iter().for_each(|&part| self.learn(part));
                largest(parts.iter().flat_map(|&part| self.masks(part)))
            }
            Form::All => {
                // Parts with one mask first, because they multiply nothing.
                let mut single = 0;
                for &part in parts {
                    match self.several(part) {
                        Some(_) => self.learn(part),
                        None => single |= self.relevant_models(part),
                    }
                }
                let several = parts.iter().filter(|part| self.several(**part).is_some());
                several.fold(vec![single], |united, &part| self.united(&united, part))
            }
        };
        self.known[node] = Some(masks);
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
            return chosen | self.relevant_models(part);
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
