//! What can be told of an expression without evaluating it: whether the names it uses exist, whether functions take so
//! many arguments, whether texts are what they have to be, and how deep it is.
//!
//! Start at [`problems`]. The sentences are cel-go's, whose type checker knows more types than those of literals.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SelectExpr, SourceInfo},
};

use super::{Declarations, budget::Budget, functions, loops, structs};

/// How deep the tree of an expression may be, as for cel-go.
const MAX_DEPTH: usize = 250;
/// How many problems are told.
const MOST_PROBLEMS: usize = 10;
/// The longest line that is shown with a problem, in bytes.
const LONGEST_LINE: usize = 4 << 10;
/// How many steps it may take to see whether texts are patterns, all those of an expression.
const PATTERN_BUDGET: u64 = 20_000;

/// Finds names that nothing has, calls that cannot be, and expressions that are too deep.
///
/// # Errors
///
/// `ERROR: <input>:1:8: undeclared reference to 'x' (in container '')`, with the line in which it is, and so on for other
/// problems; `ERROR: <input>:1:1: expression recursion limit exceeded: 250`.
pub(super) fn problems(expr: &IdedExpr, source: &SourceInfo, declared: &Declarations) -> Result<(), String> {
    let patterns = Budget::new(PATTERN_BUDGET);
    let mut names = Names { declared, bound: Vec::new(), depth: 0, found: Vec::new(), unfit: Vec::new(), patterns };
    names
        .walk(expr)
        .map_err(|TooDeep| format!("ERROR: <input>:1:1: expression recursion limit exceeded: {MAX_DEPTH}"))?;
    // Literals are looked at where all else is well.
    let mut found = if names.found.is_empty() { names.unfit } else { names.found };
    if found.is_empty() {
        return Ok(());
    }
    let start = |id: u64| source.offset_for(id).map_or(0, |(start, _)| start as usize);
    found.sort_by_key(|(id, _)| start(*id));
    found.truncate(MOST_PROBLEMS);
    let told: Vec<String> = found.iter().map(|(id, problem)| tell(&source.source, start(*id), problem)).collect();
    Err(told.join("\n"))
}

/// A problem so many bytes behind the beginning, with its line.
fn tell(source: &str, at: usize, problem: &str) -> String {
    let before = &source[..source.floor_char_boundary(at)];
    let row = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let mut told = format!("ERROR: <input>:{}:{}: {problem}", row + 1, column + 1);
    let line = source.split('\n').nth(row).unwrap_or("").trim_end_matches('\r').replace('\t', " ");
    if line.len() <= LONGEST_LINE {
        let is_wide = |c: char| !c.is_ascii();
        let dots: String = line.chars().take(column).map(|c| if is_wide(c) { '．' } else { '.' }).collect();
        let mark = if line.chars().nth(column).is_some_and(is_wide) { '＾' } else { '^' };
        told.push_str(&format!("\n | {line}\n | {dots}{mark}"));
    }
    told
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// The type whose name an expression is, such as `net.IP`, unless it begins with the name of something else.
pub(super) fn dotted_type(select: &SelectExpr, is_other: impl FnOnce(&str) -> bool) -> Option<&'static str> {
    let known = functions::DOTTED_TYPES.into_iter().find(|known| is_selected(select, known))?;
    let first = known.split('.').next().unwrap_or(known);
    if is_other(first) { None } else { Some(known) }
}

fn is_selected(select: &SelectExpr, name: &str) -> bool {
    let Some((rest, last)) = name.rsplit_once('.').filter(|_| !select.test) else { return false };
    select.field == last
        && match &select.operand.expr {
            Expr::Ident(first) => first == rest,
            Expr::Select(outer) => is_selected(outer, rest),
            _ => false,
        }
}

/// How many of a call's arguments, its first ones, are names that the others may use, and what is said of one that is no
/// name.
fn bound_by(call: &CallExpr) -> (usize, &'static str) {
    let Some(target) = &call.target else { return (0, "") };
    match (call.func_name.as_str(), call.args.len()) {
        ("optMap", 2) => (1, "optMap() variable name must be a simple identifier"),
        ("optFlatMap", 2) => (1, "optFlatMap() variable name must be a simple identifier"),
        ("bind", 3) if matches!(&target.expr, Expr::Ident(name) if name == "cel") => {
            (1, "cel.bind() variable names must be simple identifiers")
        }
        ("sortBy", 2) => (1, "argument is not an identifier"),
        _ if loops::is_one(call) => (2, "argument must be a simple name"),
        _ => (0, ""),
    }
}

struct TooDeep;

struct Names<'e> {
    declared: &'e Declarations,
    bound: Vec<&'e str>,
    /// How many expressions the place is in.
    depth: usize,
    /// The problems that were found, with the expressions that have them.
    found: Vec<(u64, String)>,
    /// The same of texts that are not what they have to be.
    unfit: Vec<(u64, String)>,
    patterns: Budget,
}

impl<'e> Names<'e> {
    fn walk(&mut self, expr: &'e IdedExpr) -> Result<(), TooDeep> {
        if self.depth == MAX_DEPTH {
            return Err(TooDeep);
        }
        self.depth += 1;
        let outcome = self.parts(expr);
        self.depth -= 1;
        outcome
    }

    fn parts(&mut self, expr: &'e IdedExpr) -> Result<(), TooDeep> {
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => {
                let declared = name.strip_prefix('.').unwrap_or(name);
                if !self.is_variable(declared) && !functions::TYPES.contains(&declared) {
                    self.found.push((expr.id, undeclared(name)));
                }
            }
            Expr::Select(select) => {
                if dotted_type(select, |name| self.is_variable(name)).is_none() {
                    self.walk(&select.operand)?;
                }
            }
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.walk(element))?,
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr))?,
            Expr::Struct(message) => {
                if !self.declared.constructs || !structs::is_type(&message.type_name) {
                    self.found.push((expr.id, undeclared(&message.type_name)));
                    return Ok(());
                }
                message.entries.iter().try_for_each(|entry| self.entry(&entry.expr))?;
            }
            Expr::Comprehension(loops) => {
                self.walk(&loops.iter_range)?;
                self.walk(&loops.accu_init)?;
                let depth = self.bound.len();
                self.bound.extend([loops.accu_var.as_str(), loops.iter_var.as_str()]);
                self.bound.extend(loops.iter_var2.as_deref());
                let inner = [&loops.loop_cond, &loops.loop_step, &loops.result];
                let outcome = inner.into_iter().try_for_each(|part| self.walk(part));
                self.bound.truncate(depth);
                outcome?;
            }
            Expr::Call(call) => self.call(expr.id, call)?,
        }
        Ok(())
    }

    fn is_variable(&self, name: &str) -> bool {
        self.bound.contains(&name) || self.declared.variables.contains(&name)
    }

    fn call(&mut self, id: u64, call: &'e CallExpr) -> Result<(), TooDeep> {
        let name = call.func_name.as_str();
        let (variables, no_name) = bound_by(call);
        // Operators have names that no function can have.
        if variables > 0 || name.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            return self.binding(call, variables, no_name);
        }
        let namespace = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(namespace)) if !self.bound.contains(&namespace.as_str()) => {
                functions::namespaced(namespace, name).map(|counts| (counts, format!("{namespace}.{name}")))
            }
            _ => None,
        };
        let target = call.target.as_deref().filter(|_| namespace.is_none());
        let known = namespace.or_else(|| {
            let counts = if target.is_some() { functions::method(name) } else { functions::function(name) };
            // There is one that is called otherwise.
            let counts =
                counts.or_else(|| functions::method(name).or_else(|| functions::function(name)).map(|_| &[][..]));
            counts.map(|counts| (counts, name.to_owned()))
        });
        let of = match target {
            Some(target) => format!("{}.", self.walked(target)?),
            None => String::new(),
        };
        let mut types = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            types.push(self.walked(arg)?);
        }
        match known {
            None => self.found.push((id, undeclared(name))),
            Some((counts, name)) if !counts.contains(&call.args.len()) => {
                let types = types.join(", ");
                let problem = format!("found no matching overload for '{name}' applied to '{of}({types})'");
                self.found.push((id, problem));
            }
            Some(_) => self.literal(call),
        }
        Ok(())
    }

    /// An operator, or a call that gives names to values.
    fn binding(&mut self, call: &'e CallExpr, variables: usize, no_name: &str) -> Result<(), TooDeep> {
        match call.target.as_deref() {
            Some(IdedExpr { expr: Expr::Ident(name), .. }) if call.func_name == "bind" && name == "cel" => {}
            Some(target) => {
                let is_no_list = matches!(&target.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct(_));
                if call.func_name == "sortBy" && is_no_list {
                    let problem =
                        "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
                    self.found.push((target.id, problem.to_owned()));
                    return Ok(());
                }
                self.walk(target)?;
            }
            None => {}
        }
        let (variables, rest) = call.args.split_at(variables.min(call.args.len()));
        let depth = self.bound.len();
        for variable in variables {
            let Expr::Ident(name) = &variable.expr else {
                self.bound.truncate(depth);
                self.found.push((variable.id, no_name.to_owned()));
                return Ok(());
            };
            self.bound.push(name);
        }
        let outcome = rest.iter().try_for_each(|arg| self.walk(arg));
        self.bound.truncate(depth);
        outcome
    }

    /// Walks through an expression and names its type, as far as a literal tells.
    fn walked(&mut self, expr: &'e IdedExpr) -> Result<&'static str, TooDeep> {
        let before = self.found.len();
        self.walk(expr)?;
        Ok(match &expr.expr {
            _ if self.found.len() > before => "!error!",
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::Bytes(_) => "bytes",
                LiteralValue::Double(_) => "double",
                LiteralValue::Int(_) => "int",
                LiteralValue::Null => "null",
                LiteralValue::String(_) => "string",
                LiteralValue::UInt(_) => "uint",
            },
            _ => "dyn",
        })
    }

    /// Looks at a text that is read whenever the expression is evaluated.
    fn literal(&mut self, call: &CallExpr) {
        let [IdedExpr { id, expr: Expr::Literal(LiteralValue::String(text)) }] = call.args.as_slice() else { return };
        let text = text.inner();
        let fits = match (call.func_name.as_str(), &call.target) {
            ("duration", None) => functions::duration(text).is_ok(),
            ("timestamp", None) => functions::timestamp(text).is_ok(),
            ("matches", Some(_)) => functions::is_pattern(text, &mut self.patterns),
            _ => true,
        };
        if !fits {
            self.unfit.push((*id, format!("invalid {} argument", call.func_name)));
        }
    }

    fn entry(&mut self, entry: &'e EntryExpr) -> Result<(), TooDeep> {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key)?;
                self.walk(&entry.value)
            }
        }
    }
}
