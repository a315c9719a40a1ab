//! Functions of lists, and of lists as sets.

use std::cmp::Ordering;

use super::{
    super::{
        eval::{Error, Outcome},
        operators,
        value::{List, Value},
    },
    Invocation,
};

pub(super) const NAMES: &[&str] = &[
    "isSorted",
    "sum",
    "min",
    "max",
    "indexOf",
    "lastIndexOf",
    "contains",
    "equivalent",
    "intersects",
    "flatten",
    "distinct",
    "slice",
    "reverse",
    "sort",
    "first",
    "last",
];

/// How many steps a call takes that compares each item with each, as upstream counts them.
pub(super) fn cost(call: &Invocation<'_, '_>) -> usize {
    match (call.namespace, call.name, call.args) {
        (Some("sets"), "equivalent", [Value::List(a), Value::List(b)]) => 2 * a.len() * b.len(),
        (Some("sets"), _, [Value::List(a), Value::List(b)]) => a.len() * b.len(),
        (None, "distinct", [Value::List(list)]) => list.len() * list.len(),
        _ => 0,
    }
}

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    if call.namespace == Some("sets") {
        let [Value::List(a), Value::List(b)] = call.args else { return None };
        let includes = |a: &List<'a>, b: &List<'a>| b.iter().all(|item| a.contains(&item));
        return Some(Ok(Value::Bool(match call.name {
            "contains" => includes(a, b),
            "equivalent" => includes(a, b) && includes(b, a),
            "intersects" => b.iter().any(|item| a.contains(&item)),
            _ => return None,
        })));
    }
    if call.namespace.is_some() || !call.receiver {
        return None;
    }
    let [Value::List(list), rest @ ..] = call.args else { return None };
    Some(match (call.name, rest) {
        ("isSorted", []) => is_sorted(list),
        ("sum", []) => sum(list),
        ("min", []) => extreme(list, Ordering::Less, "min"),
        ("max", []) => extreme(list, Ordering::Greater, "max"),
        ("indexOf", [item]) => Ok(index(list.iter().position(|found| found.equals(item)))),
        ("lastIndexOf", [item]) => {
            Ok(index((0..list.len()).rev().find(|at| list.get(*at).is_some_and(|v| v.equals(item)))))
        }
        ("reverse", []) => Ok(Value::list(list.iter().rev().collect())),
        ("distinct", []) => {
            let mut kept: Vec<Value<'a>> = Vec::new();
            for item in list.iter() {
                if !kept.iter().any(|known| known.equals(&item)) {
                    kept.push(item);
                }
            }
            Ok(Value::list(kept))
        }
        ("flatten", []) => Ok(Value::list(
            list.iter()
                .flat_map(|item| match item {
                    Value::List(inner) => inner.iter().collect(),
                    other => vec![other],
                })
                .collect(),
        )),
        ("first", []) => Ok(Value::Optional(list.get(0).map(Box::new))),
        ("last", []) => Ok(Value::Optional(list.len().checked_sub(1).and_then(|at| list.get(at)).map(Box::new))),
        ("sort", []) => sort(list),
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(list, *from, *to),
        _ => return None,
    })
}

fn index<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(found.map_or(-1, |at| at as i64))
}

fn is_sorted<'a>(list: &List<'a>) -> Outcome<'a> {
    for (a, b) in list.iter().zip(list.iter().skip(1)) {
        match a.compare(&b) {
            None => return Err(Error::no_such_overload()),
            Some(Ordering::Greater) => return Ok(Value::Bool(false)),
            Some(Ordering::Less | Ordering::Equal) => {}
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(list: &List<'a>) -> Outcome<'a> {
    let mut items = list.iter();
    let Some(first) = items.next() else { return Ok(Value::Int(0)) };
    items.try_fold(first, |sum, item| {
        operators::apply(cel::common::ast::operators::ADD, &[sum, item])
            .unwrap_or_else(|| Err(Error::no_such_overload()))
    })
}

fn extreme<'a>(list: &List<'a>, wanted: Ordering, name: &str) -> Outcome<'a> {
    let mut items = list.iter();
    let first = items.next().ok_or_else(|| Error::new(format!("{name} called on empty list")))?;
    items.try_fold(first, |best, item| match item.compare(&best) {
        None => Err(Error::no_such_overload()),
        Some(ordering) => Ok(if ordering == wanted { item } else { best }),
    })
}

fn sort<'a>(list: &List<'a>) -> Outcome<'a> {
    let mut items: Vec<Value<'a>> = list.iter().collect();
    if items.windows(2).any(|pair| pair[0].compare(&pair[1]).is_none()) {
        return Err(Error::no_such_overload());
    }
    items.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
    Ok(Value::list(items))
}

fn slice<'a>(list: &List<'a>, from: i64, to: i64) -> Outcome<'a> {
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let range = range.filter(|(from, to)| from <= to && *to <= list.len());
    let (from, to) = range.ok_or_else(|| Error::new(format!("cannot slice({from}, {to}), list of {}", list.len())))?;
    Ok(Value::list((from..to).filter_map(|at| list.get(at)).collect()))
}
