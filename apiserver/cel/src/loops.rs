//! Loops with two variables, an index or key and what is there: `list.all(i, v, i < v)`, `map.transformMap(k, v, v + 1)`.
//! The one loop with one variable that the parser does not know: `list.sortBy(item, item.name)`. And those whose list
//! would be copied for each item if they were evaluated as the parser writes them: `list.map(item, item.name)`.
//!
//! Follows `TwoVarComprehensions` and `Lists` in `github.com/google/cel-go/ext`.

use std::{collections::BTreeMap, sync::Arc};

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, Expr, operators as op},
};

use super::{
    eval::{Error, Evaluation, Items, Outcome, pairs},
    functions,
    held::{self, Retained},
    value::{Key, List, Value},
};

pub(super) fn is_one(call: &CallExpr) -> bool {
    call.target.is_some()
        && matches!(
            (call.func_name.as_str(), call.args.len()),
            ("all" | "exists" | "existsOne" | "exists_one", 3)
                | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4)
        )
}

/// Evaluates such a loop over `range`.
pub(super) fn run<'a>(evaluation: &mut Evaluation<'a>, call: &'a CallExpr, range: &Value<'a>) -> Outcome<'a> {
    let [first, second, rest @ ..] = call.args.as_slice() else { return Err(Error::no_such_overload()) };
    let (Expr::Ident(first), Expr::Ident(second)) = (&first.expr, &second.expr) else {
        return Err(Error::no_such_overload());
    };
    let Some(body) = rest.last() else { return Err(Error::no_such_overload()) };
    let filter = if rest.len() > 1 { rest.first() } else { None };
    let each = |evaluation: &mut Evaluation<'a>, part: &'a IdedExpr, key: &Value<'a>, value: &Value<'a>| {
        evaluation.with([(first, key.clone()), (second, value.clone())], &part.expr)
    };
    let mut gathered = match call.func_name.as_str() {
        "all" => Gathered::Decided { by: false, failure: None },
        "exists" => Gathered::Decided { by: true, failure: None },
        "existsOne" | "exists_one" => Gathered::Counted(0),
        "transformList" => Gathered::List(Vec::new()),
        _ => Gathered::Map(BTreeMap::new()),
    };
    for (key, value) in pairs(range).ok_or_else(Error::no_such_overload)? {
        if let Some(filter) = filter {
            match each(evaluation, filter, &key, &value)? {
                Value::Bool(true) => {}
                Value::Bool(false) => continue,
                _ => return Err(Error::no_such_overload()),
            }
        }
        let outcome = each(evaluation, body, &key, &value);
        match &mut gathered {
            Gathered::Decided { by, failure } => match outcome {
                Ok(Value::Bool(holds)) if holds == *by => return Ok(Value::Bool(holds)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => *failure = failure.take().or(Some(Error::no_such_overload())),
                Err(error) if error.is_fatal() => return Err(error),
                // A later one may decide in spite of it.
                Err(error) => *failure = failure.take().or(Some(error)),
            },
            Gathered::Counted(count) => match outcome? {
                Value::Bool(holds) => *count += usize::from(holds),
                _ => return Err(Error::no_such_overload()),
            },
            Gathered::List(items) => {
                held::room(items.len() + 1)?;
                items.push(outcome?);
            }
            Gathered::Map(entries) => {
                let value = outcome?;
                held::room(entries.len() + 1)?;
                if call.func_name == "transformMap" {
                    entries.insert(key_of(&key)?, value);
                    continue;
                }
                if !matches!(value, Value::Map(_)) {
                    return Err(Error::no_such_overload());
                }
                for (key, value) in pairs(&value).into_iter().flatten() {
                    let key = key_of(&key)?;
                    let name = key.to_string();
                    if entries.insert(key, value).is_some() {
                        return Err(Error::new(format!("insert failed: key {name} already exists")));
                    }
                }
            }
        }
    }
    match gathered {
        Gathered::Decided { failure: Some(failure), .. } => Err(failure),
        Gathered::Decided { by, failure: None } => Ok(Value::Bool(!by)),
        Gathered::Counted(count) => Ok(Value::Bool(count == 1)),
        Gathered::List(items) => Ok(Value::list(items)),
        Gathered::Map(entries) => Ok(Value::map(entries)),
    }
}

/// How many steps it takes to put a value into a list, as upstream counts them: it makes one of that, and joins both.
const PUT: usize = 12;

/// A loop that makes a list of what it comes to.
pub(super) struct Collecting<'a> {
    name: &'a str,
    filter: Option<&'a Expr>,
    item: &'a Expr,
}

/// What `map` and `filter` collect, of which the parser makes `filter ? list + [item] : list`; nothing for other loops.
pub(super) fn collecting(loops: &ComprehensionExpr) -> Option<Collecting<'_>> {
    let is_list = |expr: &Expr| matches!(expr, Expr::Ident(name) if *name == loops.accu_var);
    let (filter, step) = match &loops.loop_step.expr {
        Expr::Call(call) if call.func_name == op::CONDITIONAL => match call.args.as_slice() {
            [filter, step, list] if is_list(&list.expr) => (Some(&filter.expr), &step.expr),
            _ => return None,
        },
        step => (None, step),
    };
    let Expr::Call(step) = step else { return None };
    let [list, IdedExpr { expr: Expr::List(one), .. }] = step.args.as_slice() else { return None };
    let [item] = one.elements.as_slice() else { return None };
    let is_collected = step.func_name == op::ADD && is_list(&list.expr) && one.optional_indices.is_empty();
    let is_whole = matches!(&loops.loop_cond.expr, Expr::Literal(_))
        && matches!(&loops.accu_init.expr, Expr::List(none) if none.elements.is_empty())
        && is_list(&loops.result.expr)
        && loops.iter_var2.is_none();
    (is_collected && is_whole).then_some(Collecting { name: &loops.iter_var, filter, item: &item.expr })
}

pub(super) fn collect<'a>(
    evaluation: &mut Evaluation<'a>,
    collecting: Collecting<'a>,
    items: Items<'_, 'a>,
) -> Outcome<'a> {
    let Collecting { name, filter, item } = collecting;
    let mut collected = Vec::new();
    let mut failure = None;
    for (value, _) in items {
        let binding = || [(name, value.clone())];
        evaluation.budget().spend(1)?;
        let passes = match filter.map(|filter| evaluation.with(binding(), filter)) {
            None => Ok(true),
            Some(Ok(Value::Bool(passes))) => Ok(passes),
            Some(Ok(_)) => Err(Error::no_such_overload()),
            Some(Err(error)) => Err(error),
        };
        let put = match passes {
            // Nothing is put into an error.
            Ok(passes) if !passes || failure.is_some() => continue,
            Ok(_) => evaluation.budget().spend(PUT).and_then(|()| evaluation.with(binding(), item)),
            Err(error) => Err(error),
        };
        match put {
            Ok(value) => {
                held::room(collected.len() + 1)?;
                collected.push(value);
            }
            Err(error) if error.is_fatal() => return Err(error),
            // One of a later item is told in its place.
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or_else(|| Ok(Value::list(collected)), Err)
}

/// Sorts a list by what an expression makes of its items.
pub(super) fn sort_by<'a>(evaluation: &mut Evaluation<'a>, args: &'a [IdedExpr], range: &Value<'a>) -> Outcome<'a> {
    let ([IdedExpr { expr: Expr::Ident(name), .. }, by], Value::List(list)) = (args, range) else {
        return Err(Error::no_such_overload());
    };
    let mut keys = Vec::with_capacity(list.len());
    for item in list.iter() {
        keys.push(evaluation.with([(name, item)], &by.expr)?);
        held::room(keys.len())?;
    }
    functions::sort(list, &List::Made(Arc::new(Retained::new(keys.len(), keys))), evaluation.budget())
}

fn key_of(value: &Value<'_>) -> Result<Key, Error> {
    value.clone().key().ok_or_else(|| Error::new("unsupported key type"))
}

/// What a loop has come to.
enum Gathered<'a> {
    /// Whether none was `by` yet.
    Decided {
        by: bool,
        failure: Option<Error>,
    },
    /// How many hold.
    Counted(usize),
    List(Vec<Value<'a>>),
    Map(BTreeMap<Key, Value<'a>>),
}
