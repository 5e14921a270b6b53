//! Plan classes, of models that have the same plan as targets.

use super::solve::{Form, Mask, MatrixNode, MatrixPart};

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
