//! Evaluates an expression: operators, fields, macros and the calls of functions.
//!
//! Start at [`Evaluation::value`]. Every step costs, and an evaluation whose budget is spent ends, so that no policy
//! can hold up the server. Errors have the texts of cel-go, since policies' authors read those.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue, SelectExpr, operators as op,
};

use super::{
    Inputs, Limits, Variable,
    authorizer::{self, Answers, Check, Inquiry},
    budget::Budget,
    check,
    functions::{self, Invocation, Patterns},
    held, loops, operators, structs,
    value::{Key, Text, Value},
};

/// The longest sentence that says what is wrong, in bytes.
const LONGEST_ERROR: usize = 4 << 10;
/// What is said of an expression that took more steps than one may.
pub(super) const OVER_LIMIT: &str = "operation cancelled: actual cost limit exceeded";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Error {
    /// What is wrong, in cel-go's words.
    Message(String),
    OutOfBudget,
    /// The expression took more steps than one may. To those that refer to it, it is wrong as others are.
    OverLimit,
    /// The evaluation is nested too deeply for the thread that it runs on.
    TooDeep,
    /// The authorizer has to be asked this first.
    Unanswered(Box<Inquiry>),
}

impl Error {
    pub(super) fn new(text: impl Into<String>) -> Self {
        let mut text = text.into();
        // It may have what a user wrote in it, and goes wherever the value would have gone.
        text.truncate(text.floor_char_boundary(LONGEST_ERROR));
        Self::Message(text)
    }

    /// Whether it ends the expression: no other part of it can decide in spite of it.
    pub(super) fn is_fatal(&self) -> bool {
        !matches!(self, Self::Message(_))
    }

    pub(super) fn no_such_overload() -> Self {
        Self::new("no such overload")
    }

    pub(super) fn no_such_key(key: impl std::fmt::Display) -> Self {
        Self::new(format!("no such key: {key}"))
    }
}

pub(super) type Outcome<'a> = Result<Value<'a>, Error>;

/// What a loop goes through: items or keys; where it has two variables, indices or keys with what is there.
pub(super) type Items<'r, 'a> = Box<dyn Iterator<Item = (Value<'a>, Option<Value<'a>>)> + 'r>;

/// The indices of a list, or the keys of a map, with what is there.
pub(super) fn pairs<'r, 'a>(range: &'r Value<'a>) -> Option<Box<dyn Iterator<Item = (Value<'a>, Value<'a>)> + 'r>> {
    match range {
        Value::List(list) => {
            Some(Box::new(list.iter().enumerate().map(|(index, item)| (Value::Int(index as i64), item))))
        }
        Value::Map(map) => Some(Box::new(map.keys().zip(map.entries()).map(|(key, (_, value))| (key, value)))),
        _ => None,
    }
}

/// One evaluation, or several that share variables and a budget.
pub(super) struct Evaluation<'a> {
    inputs: &'a dyn Inputs,
    answers: &'a Answers,
    variables: &'a [Variable],
    /// How many of the variables may be referred to: those before the one that is evaluated.
    visible: usize,
    /// The variables that were evaluated, and how deep that went.
    known: HashMap<&'a str, (Outcome<'a>, usize)>,
    bindings: Vec<(&'a str, Outcome<'a>)>,
    budget: Budget,
    /// How many steps an expression may take.
    each: u64,
    patterns: Patterns,
    /// How many expressions may be evaluated, one for the other.
    most: usize,
    /// How many expressions are being evaluated, one for the other.
    depth: usize,
    /// The deepest that was needed, as if nothing had been known.
    deepest: usize,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(inputs: &'a dyn Inputs, answers: &'a Answers, variables: &'a [Variable], limits: Limits) -> Self {
        let visible = variables.len();
        let (known, bindings) = (HashMap::new(), Vec::new());
        let (budget, each, most) = (Budget::of(limits), limits.each, limits.depth);
        let patterns = Patterns::default();
        Self {
            inputs,
            answers,
            variables,
            visible,
            known,
            bindings,
            budget,
            each,
            patterns,
            most,
            depth: 0,
            deepest: 0,
        }
    }

    pub(super) fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// The value of a whole expression, which may take as many steps as one may.
    pub(super) fn whole(&mut self, expr: &'a Expr) -> Outcome<'a> {
        let before = self.budget.grant(self.each);
        let outcome = self.value(expr);
        self.budget.grant(before);
        outcome
    }

    pub(super) fn value(&mut self, expr: &'a Expr) -> Outcome<'a> {
        self.budget.spend(1)?;
        self.reach(1)?;
        self.depth += 1;
        let outcome = self.evaluate(expr);
        self.depth -= 1;
        // What is large and was made costs wherever it comes from, a variable too: else a few steps could have it many
        // times. What an object holds is there already.
        if let Ok(value) = &outcome {
            if !value.is_borrowed() {
                self.budget.spend(value.size())?;
            }
            // It may be the copy of one that is there.
            held::room(0)?;
        }
        outcome
    }

    fn evaluate(&mut self, expr: &'a Expr) -> Outcome<'a> {
        match expr {
            Expr::Unspecified => Err(Error::new("an empty expression")),
            Expr::Literal(literal) => Ok(constant(literal)),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (index, element) in list.elements.iter().enumerate() {
                    match (self.value(&element.expr)?, list.optional_indices.contains(&index)) {
                        (Value::Optional(value), true) => items.extend(value.map(|value| *value)),
                        (value, _) => items.push(value),
                    }
                }
                Ok(Value::list(items))
            }
            Expr::Map(map) => Ok(Value::map(self.entries(&map.entries)?)),
            Expr::Struct(message) => structs::construct(&message.type_name, self.entries(&message.entries)?),
        }
    }

    /// Notes that something so many levels deep is needed here. What is known already counts as what it took: a value
    /// is nested no deeper than that, and has to be walked and dropped.
    fn reach(&mut self, levels: usize) -> Result<(), Error> {
        self.deepest = self.deepest.max(self.depth + levels);
        if self.deepest > self.most { Err(Error::TooDeep) } else { Ok(()) }
    }

    fn entries(&mut self, entries: &'a [IdedEntryExpr]) -> Result<BTreeMap<Key, Value<'a>>, Error> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let (key, value, optional) = match &entry.expr {
                EntryExpr::StructField(field) => (Key::String(field.field.clone()), &field.value, field.optional),
                EntryExpr::MapEntry(entry) => {
                    let key = self.value(&entry.key.expr)?;
                    let key = key.key().ok_or_else(|| Error::new("unsupported key type"))?;
                    (key, &entry.value, entry.optional)
                }
            };
            match (self.value(&value.expr)?, optional) {
                (Value::Optional(Some(value)), true) => map.insert(key, *value),
                (Value::Optional(None), true) => None,
                (value, _) => map.insert(key, value),
            };
        }
        Ok(map)
    }

    /// The value of an expression in which more names have values.
    pub(super) fn with<const N: usize>(&mut self, names: [(&'a str, Value<'a>); N], expr: &'a Expr) -> Outcome<'a> {
        let depth = self.bindings.len();
        self.bindings.extend(names.map(|(name, value)| (name, Ok(value))));
        let outcome = self.value(expr);
        self.bindings.truncate(depth);
        outcome
    }

    fn is_declared(&self, name: &str) -> bool {
        self.inputs.variable(name).is_some()
    }

    fn bound(&self, name: &str) -> Option<&Outcome<'a>> {
        self.bindings.iter().rev().find(|(bound, _)| *bound == name).map(|(_, value)| value)
    }

    fn named(&self, name: &str) -> Outcome<'a> {
        // A dot before it says that it is no name which the expression has bound itself.
        let name = match name.strip_prefix('.') {
            Some(declared) => declared,
            None => match self.bound(name) {
                Some(value) => return value.clone(),
                None => name,
            },
        };
        if let Some(json) = self.inputs.variable(name) {
            return Ok(Value::from(json));
        }
        if let Some(resource) = self.inputs.authorizer().filter(|_| name == "authorizer") {
            return Ok(Value::Authorizer(Arc::new(Check::new(resource.clone()))));
        }
        let type_name = functions::TYPES.iter().find(|known| **known == name);
        // What is not declared was refused when the expression was read.
        type_name.map(|name| Value::Type(name)).ok_or_else(|| Error::new(format!("no such attribute(s): {name}")))
    }

    fn select(&mut self, select: &'a SelectExpr) -> Outcome<'a> {
        let field = select.field.as_str();
        if let Expr::Ident(name) = &select.operand.expr
            && name == "variables"
            && self.bound(name).is_none()
        {
            return if select.test {
                Ok(Value::Bool(self.variables[..self.visible].iter().any(|variable| variable.name == field)))
            } else {
                self.variable(field)
            };
        }
        if let Some(name) = check::dotted_type(select, |name| self.bound(name).is_some() || self.is_declared(name)) {
            return Ok(Value::Type(name));
        }
        let operand = self.value(&select.operand.expr)?;
        match operand {
            Value::Map(map) if select.test => Ok(Value::Bool(map.field(field).is_some())),
            Value::Map(map) => map.field(field).ok_or_else(|| Error::no_such_key(field)),
            Value::Optional(inner) => {
                let found = inner.and_then(|inner| operators::field_of(&inner, field));
                Ok(if select.test { Value::Bool(found.is_some()) } else { Value::Optional(found.map(Box::new)) })
            }
            Value::Struct(made) if select.test => Ok(Value::Bool(made.field(field).is_some())),
            Value::Struct(made) => made.field(field).ok_or_else(|| Error::no_such_key(field)),
            Value::Authorizer(check) if field == "requestResource" => {
                Ok(Value::Authorizer(Arc::new(check.request_resource())))
            }
            // What has no fields has not this one either.
            _ if select.test => Ok(Value::Bool(false)),
            _ => Err(Error::no_such_key(field)),
        }
    }

    fn variable(&mut self, name: &'a str) -> Outcome<'a> {
        if let Some((known, height)) = self.known.get(name) {
            let (known, height) = (known.clone(), *height);
            self.reach(height)?;
            return known;
        }
        let variables = self.variables;
        let position = variables[..self.visible].iter().position(|variable| variable.name == name);
        let position = position.ok_or_else(|| Error::no_such_key(name))?;
        // Variables see those before them, and nothing that is bound where they are referred to.
        let (visible, bindings) = (self.visible, std::mem::take(&mut self.bindings));
        self.visible = position;
        let deepest = std::mem::replace(&mut self.deepest, self.depth);
        let value = match &variables[position].expression {
            Ok(expression) => self.whole(&expression.expr),
            Err(error) => Err(Error::new(format!("composited variable {name:?} fails to compile: {error}"))),
        };
        (self.visible, self.bindings) = (visible, bindings);
        let height = self.deepest - self.depth;
        self.deepest = self.deepest.max(deepest);
        let failed = |text: &str| Error::Message(format!("composited variable {name:?} fails to evaluate: {text}"));
        let value = value.map_err(|error| match error {
            Error::Message(text) => failed(&text),
            Error::OverLimit => failed(OVER_LIMIT),
            other => other,
        });
        if !value.as_ref().is_err_and(Error::is_fatal) {
            self.known.insert(&variables[position].name, (value.clone(), height));
        }
        value
    }

    fn comprehension(&mut self, loops: &'a ComprehensionExpr) -> Outcome<'a> {
        let range = self.value(&loops.iter_range.expr)?;
        // One by one: there may be loops in loops, all of them over something large.
        let items: Items<'_, 'a> = match (&range, &loops.iter_var2) {
            (Value::List(list), None) => Box::new(list.iter().map(|item| (item, None))),
            (Value::Map(map), None) => Box::new(map.keys().map(|key| (key, None))),
            (range, Some(_)) => {
                let pairs = pairs(range).ok_or_else(Error::no_such_overload)?;
                Box::new(pairs.map(|(key, value)| (key, Some(value))))
            }
            _ => return Err(Error::no_such_overload()),
        };
        let depth = self.bindings.len();
        let initial = self.value(&loops.accu_init.expr);
        self.bindings.push((&loops.accu_var, initial));
        let outcome = match loops::collecting(loops) {
            Some(collecting) => loops::collect(self, collecting, items),
            None => self.iterate(loops, depth, items),
        };
        self.bindings.truncate(depth);
        outcome
    }

    fn iterate(&mut self, loops: &'a ComprehensionExpr, depth: usize, items: Items<'_, 'a>) -> Outcome<'a> {
        for (first, second) in items {
            match self.value(&loops.loop_cond.expr) {
                Ok(Value::Bool(false)) => break,
                Ok(_) | Err(Error::Message(_)) => {}
                Err(fatal) => return Err(fatal),
            }
            self.bindings.push((&loops.iter_var, Ok(first)));
            if let (Some(name), Some(second)) = (&loops.iter_var2, second) {
                self.bindings.push((name, Ok(second)));
            }
            // An error is a value to go on with: a later element may decide in spite of it.
            let step = self.value(&loops.loop_step.expr);
            if step.as_ref().is_err_and(Error::is_fatal) {
                return step;
            }
            self.bindings.truncate(depth + 1);
            self.bindings[depth].1 = step;
        }
        self.value(&loops.result.expr)
    }

    fn call(&mut self, call: &'a CallExpr) -> Outcome<'a> {
        if let Some(outcome) = self.special(call) {
            return outcome;
        }
        let mut args = Vec::with_capacity(call.args.len() + 1);
        let mut namespace = None;
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(name)
                    if self.bound(name).is_none() && functions::namespaced(name, &call.func_name).is_some() =>
                {
                    namespace = Some(name.as_str());
                }
                target => args.push(self.value(target)?),
            }
        }
        for arg in &call.args {
            args.push(self.value(&arg.expr)?);
        }
        self.budget.spend(operators::looked_through(&call.func_name, &args).iter().map(Value::size).sum())?;
        if call.target.is_none()
            && let Some(outcome) = operators::apply(&call.func_name, &args, &mut self.budget)
        {
            return outcome;
        }
        if let Some(Value::Authorizer(_)) = args.first()
            && call.target.is_some()
        {
            let Value::Authorizer(check) = args.remove(0) else { return Err(Error::no_such_overload()) };
            if call.func_name == authorizer::CHECK {
                self.budget.charge(authorizer::CHECKING)?;
            }
            let outcome = Arc::unwrap_or_clone(check).call(&call.func_name, &args, self.answers);
            return outcome.unwrap_or_else(|| Err(Error::no_such_overload()));
        }
        let receiver = call.target.is_some() && namespace.is_none();
        let invocation = Invocation { namespace, name: &call.func_name, receiver, args: &args };
        self.budget.spend(functions::cost(&invocation))?;
        functions::call(&invocation, &mut self.budget, &mut self.patterns)
    }

    /// Calls whose arguments are not all evaluated, or not before.
    fn special(&mut self, call: &'a CallExpr) -> Option<Outcome<'a>> {
        let args = &call.args;
        Some(match (call.func_name.as_str(), args.len(), &call.target) {
            (op::CONDITIONAL, 3, None) => match self.value(&args[0].expr) {
                Ok(Value::Bool(condition)) => self.value(&args[if condition { 1 } else { 2 }].expr),
                Ok(_) => Err(Error::no_such_overload()),
                Err(error) => Err(error),
            },
            (op::LOGICAL_AND, _, None) => self.logical(args, false),
            (op::LOGICAL_OR, _, None) => self.logical(args, true),
            (op::NOT_STRICTLY_FALSE, 1, None) => match self.value(&args[0].expr) {
                Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                Ok(_) | Err(Error::Message(_)) => Ok(Value::Bool(true)),
                Err(fatal) => Err(fatal),
            },
            ("or" | "orValue", 1, Some(target)) => match self.value(&target.expr) {
                // The other one is not needed where there is a value.
                Ok(Value::Optional(Some(value))) if call.func_name == "orValue" => Ok(*value),
                Ok(Value::Optional(None)) => match (self.value(&args[0].expr), call.func_name.as_str()) {
                    (Ok(other), "or") if !matches!(other, Value::Optional(_)) => Err(Error::no_such_overload()),
                    (other, _) => other,
                },
                // What is not optional is there.
                value => value,
            },
            (op::OPT_SELECT, 2, None) => self.optional_at(args),
            (op::OPT_INDEX, 2, None) => self.optional_at(args),
            ("optMap" | "optFlatMap", 2, Some(target)) => {
                let Expr::Ident(name) = &args[0].expr else { return Some(Err(Error::no_such_overload())) };
                match self.value(&target.expr) {
                    Ok(Value::Optional(None)) => Ok(Value::Optional(None)),
                    Ok(Value::Optional(Some(inner))) => {
                        self.bindings.push((name, Ok(*inner)));
                        let mapped = self.value(&args[1].expr);
                        self.bindings.pop();
                        let wraps = call.func_name == "optMap";
                        mapped.map(|value| if wraps { Value::Optional(Some(Box::new(value))) } else { value })
                    }
                    Ok(_) => Err(Error::no_such_overload()),
                    Err(error) => Err(error),
                }
            }
            ("bind", 3, Some(target)) if matches!(&target.expr, Expr::Ident(name) if name == "cel") => {
                let Expr::Ident(name) = &args[0].expr else { return Some(Err(Error::no_such_overload())) };
                let value = self.value(&args[1].expr);
                self.bindings.push((name, value));
                let outcome = self.value(&args[2].expr);
                self.bindings.pop();
                outcome
            }
            ("sortBy", 2, Some(target)) => match self.value(&target.expr) {
                Ok(range) => loops::sort_by(self, args, &range),
                Err(error) => Err(error),
            },
            (_, _, Some(target)) if loops::is_one(call) => match self.value(&target.expr) {
                Ok(range) => loops::run(self, call, &range),
                Err(error) => Err(error),
            },
            _ => return None,
        })
    }

    /// `&&` and `||`: one side may decide in spite of an error on the other.
    fn logical(&mut self, args: &'a [cel::IdedExpr], decides: bool) -> Outcome<'a> {
        let mut failure = None;
        for arg in args {
            match self.value(&arg.expr) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failure = failure.or(Some(Error::no_such_overload())),
                Err(error @ Error::Message(_)) => failure = failure.or(Some(error)),
                Err(fatal) => return Err(fatal),
            }
        }
        failure.map_or(Ok(Value::Bool(!decides)), Err)
    }

    /// `a.?b` and `a[?b]`.
    fn optional_at(&mut self, args: &'a [cel::IdedExpr]) -> Outcome<'a> {
        let operand = match self.value(&args[0].expr)? {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => *inner,
            other => other,
        };
        let index = self.value(&args[1].expr)?;
        let found = match (&operand, &index) {
            (Value::Map(map), Value::String(name)) => map.field(name),
            (Value::Map(map), index) => index.key().and_then(|key| map.get(&key)),
            (Value::Struct(_), Value::String(name)) => operators::field_of(&operand, name),
            (Value::List(list), index) => operators::position(index)?.and_then(|index| list.get(index)),
            _ => None,
        };
        Ok(Value::Optional(found.map(Box::new)))
    }
}

fn constant<'a>(literal: &'a LiteralValue) -> Value<'a> {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(value.inner().into()),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::String(Text::Borrowed(value.inner())),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
    }
}
