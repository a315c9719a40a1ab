//! Functions of lists, and of lists as sets.

use std::{cmp::Ordering, mem};

use super::{
    super::{
        budget::{Budget, rounds},
        eval::{Error, Outcome},
        held, operators,
        value::{List, Value, all},
    },
    Invocation,
};

/// How many steps a call takes that compares each item with each, as upstream counts them.
pub(super) fn cost(call: &Invocation<'_, '_>) -> usize {
    match (call.namespace, call.name, call.args) {
        (Some("sets"), "equivalent", [Value::List(a), Value::List(b)]) => 2 * a.len() * b.len(),
        (Some("sets"), _, [Value::List(a), Value::List(b)]) => a.len() * b.len(),
        (None, "distinct", [Value::List(list)]) => list.len() * list.len(),
        _ => 0,
    }
}

pub(super) fn call<'a>(call: &Invocation<'_, 'a>, budget: &mut Budget) -> Option<Outcome<'a>> {
    if call.namespace == Some("sets") {
        let [Value::List(a), Value::List(b)] = call.args else { return None };
        return sets(call.name, a, b, budget);
    }
    if let (Some("lists"), "range", [Value::Int(end)]) = (call.namespace, call.name, call.args) {
        return Some(range(*end, budget));
    }
    if call.namespace.is_some() || !call.receiver {
        return None;
    }
    let [Value::List(list), rest @ ..] = call.args else { return None };
    Some(match (call.name, rest) {
        ("isSorted", []) => is_sorted(list, budget),
        ("sum", []) => sum(list, budget),
        ("min", []) => extreme(list, Ordering::Less, "min", budget),
        ("max", []) => extreme(list, Ordering::Greater, "max", budget),
        ("indexOf", [item]) => list.position(item, budget).map(index),
        ("lastIndexOf", [item]) => last_position(list, item, budget).map(index),
        ("reverse", []) => Ok(Value::list(list.iter().rev().collect())),
        ("distinct", []) => distinct(list, budget),
        ("flatten", []) => flatten(list, 1, budget),
        ("flatten", [Value::Int(depth)]) => match u32::try_from(*depth) {
            Ok(depth) => flatten(list, depth, budget),
            Err(_) if *depth < 0 => Err(Error::new("level must be non-negative")),
            Err(_) => flatten(list, u32::MAX, budget),
        },
        ("first", []) => Ok(Value::Optional(list.get(0).map(Box::new))),
        ("last", []) => Ok(Value::Optional(list.len().checked_sub(1).and_then(|at| list.get(at)).map(Box::new))),
        ("sort", []) => sort(list, list, budget),
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(list, *from, *to),
        _ => return None,
    })
}

/// The whole numbers from 0 on, of which there are so many.
fn range<'a>(end: i64, budget: &mut Budget) -> Outcome<'a> {
    let end = usize::try_from(end).unwrap_or(0);
    budget.spend(end)?;
    held::room(end)?;
    Ok(Value::list((0..end).map(|number| Value::Int(number as i64)).collect()))
}

fn index<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(found.map_or(-1, |at| at as i64))
}

fn sets<'a>(name: &str, a: &List<'a>, b: &List<'a>, budget: &mut Budget) -> Option<Outcome<'a>> {
    let mut includes = |a: &List<'a>, b: &List<'a>| all(b.iter(), |item| a.contains(&item, budget));
    let holds = match name {
        "contains" => includes(a, b),
        "equivalent" => includes(a, b).and_then(|holds| Ok(holds && includes(b, a)?)),
        "intersects" => all(b.iter(), |item| Ok(!a.contains(&item, budget)?)).map(|apart| !apart),
        _ => return None,
    };
    Some(holds.map(Value::Bool))
}

fn last_position<'a>(list: &List<'a>, wanted: &Value<'a>, budget: &mut Budget) -> Result<Option<usize>, Error> {
    for (index, item) in (0..list.len()).rev().zip(list.iter().rev()) {
        if item.equals(wanted, budget)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn distinct<'a>(list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        if all(&kept, |known| Ok(!known.equals(&item, budget)?))? {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

/// The items of the lists that are in a list, of those in them, and so on so many lists deep.
fn flatten<'a>(list: &List<'a>, depth: u32, budget: &mut Budget) -> Outcome<'a> {
    let mut flat = Vec::new();
    flatten_into(&mut flat, list, depth, budget)?;
    Ok(Value::list(flat))
}

/// Goes no deeper than the evaluation that made the lists.
fn flatten_into<'a>(flat: &mut Vec<Value<'a>>, list: &List<'a>, depth: u32, budget: &mut Budget) -> Result<(), Error> {
    // The same list may be in it many times.
    budget.spend(list.len())?;
    for item in list.iter() {
        match item {
            Value::List(inner) if depth > 0 => flatten_into(flat, &inner, depth - 1, budget)?,
            other => {
                held::room(flat.len() + 1)?;
                flat.push(other);
            }
        }
    }
    Ok(())
}

/// Compares two values and pays for what has to be read of them.
fn compare(a: &Value<'_>, b: &Value<'_>, budget: &mut Budget) -> Result<Ordering, Error> {
    budget.spend(a.size().min(b.size()))?;
    a.compare(b).ok_or_else(Error::no_such_overload)
}

fn is_sorted<'a>(list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    for (a, b) in list.iter().zip(list.iter().skip(1)) {
        if compare(&a, &b, budget)? == Ordering::Greater {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    let mut items = list.iter();
    let Some(first) = items.next() else { return Ok(Value::Int(0)) };
    let is_summable = matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_));
    if !is_summable {
        return Err(Error::no_such_overload());
    }
    items.try_fold(first, |sum, item| {
        operators::apply(cel::common::ast::operators::ADD, &[sum, item], budget)
            .unwrap_or_else(|| Err(Error::no_such_overload()))
    })
}

fn extreme<'a>(list: &List<'a>, wanted: Ordering, name: &str, budget: &mut Budget) -> Outcome<'a> {
    let mut items = list.iter();
    let first = items.next().ok_or_else(|| Error::new(format!("{name} called on empty list")))?;
    items.try_fold(first, |best, item| {
        let found = compare(&item, &best, budget)?;
        Ok(if found == wanted { item } else { best })
    })
}

/// The items of a list in the order of others, one for each.
pub(in super::super) fn sort<'a>(list: &List<'a>, keys: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    let count = keys.len();
    held::room(count)?;
    // Paid for in advance: an order that an empty budget breaks off would be none.
    budget.spend(rounds(count) * (count / 10))?;
    if let Some(first) = keys.get(0) {
        let has_order = matches!(
            first,
            Value::Bool(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
        );
        if !has_order {
            return Err(Error::new("list elements must be comparable"));
        }
        if keys.iter().any(|key| mem::discriminant(&key) != mem::discriminant(&first)) {
            return Err(Error::new("list elements must have the same type"));
        }
    }
    budget.spend(rounds(count) * keys.iter().map(|key| key.size()).sum::<usize>())?;
    let mut items: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    items.sort_by(|(a, _), (b, _)| a.order(b));
    Ok(Value::list(items.into_iter().map(|(_, item)| item).collect()))
}

fn slice<'a>(list: &List<'a>, from: i64, to: i64) -> Outcome<'a> {
    let refused = |why: &str| Err(Error::new(format!("cannot slice({from}, {to}), {why}")));
    let (Ok(start), Ok(end)) = (usize::try_from(from), usize::try_from(to)) else {
        return refused("negative indexes not supported");
    };
    if start > end {
        return refused("start index must be less than or equal to end index");
    }
    if end > list.len() {
        return refused(&format!("list is length {}", list.len()));
    }
    Ok(Value::list((start..end).filter_map(|at| list.get(at)).collect()))
}
