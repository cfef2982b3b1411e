//! The outline of a source, found in its tokens: functions, modules, matches, and where tests are.

use std::ops::RangeInclusive;

use super::token::{Kind, Token};

/// What rules ask about.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) functions: Vec<Function>,
    /// Every `mod name`, with its line.
    pub(super) modules: Vec<(usize, String)>,
    /// The arms of every match.
    pub(super) matches: Vec<Vec<Arm>>,
    /// Lines of items that exist in tests only.
    pub(super) tests: Vec<RangeInclusive<usize>>,
    /// The line on which trailing test modules begin: what stands before it is the file's own length.
    pub(super) trailing_tests: Option<usize>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) first_line: usize,
    pub(super) last_line: usize,
}

/// An arm of a match.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arm {
    pub(super) line: usize,
    /// It takes whatever comes.
    pub(super) is_wild: bool,
    /// What stands before the last `::` of a variant that it names.
    pub(super) owner: Option<String>,
}

impl Outline {
    pub(super) fn of(tokens: &[Token]) -> Self {
        let reader = Reader { tokens };
        let mut outline = Self { trailing_tests: reader.trailing_tests(), ..Self::default() };
        for (at, token) in tokens.iter().enumerate() {
            match token.name() {
                Some("fn") => outline.functions.extend(reader.function(at)),
                Some("mod") => {
                    let name = tokens.get(at + 1).and_then(Token::name);
                    outline.modules.extend(name.map(|name| (token.line, name.to_owned())));
                }
                Some("match") => outline.matches.extend(reader.arms_of(at)),
                Some(_) => {}
                None if token.is('#') && reader.is_test_attribute(at) => {
                    outline.tests.push(token.line..=reader.last_line_of_item(at));
                }
                None => {}
            }
        }
        outline
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
}

impl Reader<'_> {
    /// The place after a token, or after what it opens.
    fn after(&self, at: usize) -> usize {
        match self.tokens[at].kind {
            Kind::Open(_) => self.tokens[at].mate + 1,
            Kind::Name(_) | Kind::Literal(_) | Kind::Sign(_) | Kind::Close => at + 1,
        }
    }

    /// Places from here on, on the same level, up to its end.
    fn level(&self, from: usize) -> impl Iterator<Item = usize> + '_ {
        let within = move |at: &usize| self.tokens.get(*at).is_some_and(|token| token.kind != Kind::Close);
        std::iter::successors(Some(from).filter(within), move |at| Some(self.after(*at)).filter(within))
    }

    fn function(&self, at: usize) -> Option<Function> {
        let name = self.tokens.get(at + 1)?.name()?.to_owned();
        let mut rest = self.level(at + 1).take_while(|at| !self.tokens[*at].is(';'));
        let body = rest.find(|at| self.tokens[*at].opens('{'))?;
        let last_line = self.tokens[self.tokens[body].mate].line;
        Some(Function { name, first_line: self.tokens[at].line, last_line })
    }

    /// The arms of a match: of the first braces after it that hold an arrow.
    fn arms_of(&self, at: usize) -> Option<Vec<Arm>> {
        let mut rest = self.level(at + 1).take_while(|at| !self.tokens[*at].is(';'));
        let body = rest.find(|at| self.tokens[*at].opens('{') && self.arrow(at + 1).is_some())?;
        let mut arms = Vec::new();
        let mut start = body + 1;
        while let Some(arrow) = self.arrow(start) {
            arms.push(self.arm(start, arrow));
            start = self.after_arm(arrow + 2);
        }
        Some(arms)
    }

    /// The next `=>` on this level.
    fn arrow(&self, from: usize) -> Option<usize> {
        let is_arrow = |at: &usize| {
            let next = self.tokens.get(at + 1);
            self.tokens[*at].is('=') && next.is_some_and(|next| next.is('>'))
        };
        self.level(from).find(is_arrow)
    }

    /// Behind an arm's body: a block, or an expression up to its comma.
    fn after_arm(&self, body: usize) -> usize {
        let is_comma = |at: &usize| self.tokens[*at].is(',');
        if self.tokens.get(body).is_some_and(|token| token.opens('{')) {
            let next = self.after(body);
            return next + usize::from(self.tokens.get(next).is_some_and(|token| token.is(',')));
        }
        self.level(body).find(is_comma).map_or(self.tokens.len(), |comma| comma + 1)
    }

    fn arm(&self, start: usize, arrow: usize) -> Arm {
        let places: Vec<usize> = self.level(start).take_while(|at| *at < arrow).collect();
        let guard = places.iter().position(|at| self.tokens[*at].name() == Some("if"));
        let pattern = &places[..guard.unwrap_or(places.len())];
        let alternatives: Vec<Vec<&Token>> = pattern
            .split(|at| self.tokens[*at].is('|'))
            .map(|alternative| alternative.iter().map(|at| &self.tokens[*at]).collect())
            .collect();
        let is_wild =
            |alternative: &Vec<&Token>| matches!(alternative[..], [only] if only.name() == Some("_"));
        Arm {
            line: self.tokens[start].line,
            is_wild: guard.is_none() && alternatives.iter().any(is_wild),
            owner: alternatives.iter().find_map(|alternative| owner(alternative)),
        }
    }

    /// Whether `#[…]` at this place says `test`, `tokio::test`, `cfg(test)` or the like.
    fn is_test_attribute(&self, at: usize) -> bool {
        let open = at + 1;
        if !self.tokens.get(open).is_some_and(|token| token.opens('[')) {
            return false;
        }
        let inner = &self.tokens[open + 1..self.tokens[open].mate];
        let path: Vec<&str> = inner
            .iter()
            .take_while(|token| token.name().is_some() || token.is(':'))
            .filter_map(Token::name)
            .collect();
        let says = |word: &str| inner.iter().any(|token| token.name() == Some(word));
        match path.last() {
            Some(&"test") => true,
            Some(&"cfg") => says("test") && !says("not"),
            Some(_) | None => false,
        }
    }

    /// Where the item ends that an attribute belongs to: with its body, or with a semicolon.
    fn last_line_of_item(&self, attribute: usize) -> usize {
        let mut ends_with_semicolon = false;
        let mut last = attribute;
        for at in self.level(attribute) {
            let token = &self.tokens[at];
            last = at;
            ends_with_semicolon |= matches!(token.name(), Some("use" | "static" | "type" | "let"));
            if token.is(';') || (token.opens('{') && !ends_with_semicolon) {
                break;
            }
        }
        let token = &self.tokens[last];
        if matches!(token.kind, Kind::Open(_)) { self.tokens[token.mate].line } else { token.line }
    }

    /// Read backwards from the end of the file: `#[cfg(test)] mod name { … }`, as often as it stands there.
    fn trailing_tests(&self) -> Option<usize> {
        let mut end = self.tokens.len();
        let mut line = None;
        while let Some(start) = self.test_module_before(end) {
            line = Some(self.tokens[start].line);
            end = start;
        }
        line
    }

    /// Where the test module starts that ends just before this place.
    fn test_module_before(&self, end: usize) -> Option<usize> {
        let close = self.tokens.get(end.checked_sub(1)?)?;
        let open = close.mate;
        if close.kind != Kind::Close || !self.tokens[open].opens('{') {
            return None;
        }
        let mut start = open.checked_sub(2)?;
        if self.tokens[start].name() != Some("mod") {
            return None;
        }
        if start >= 1 && self.tokens[start - 1].name() == Some("pub") {
            start -= 1;
        }
        let mut is_test = false;
        while let Some(attribute) = self.attribute_before(start) {
            is_test |= self.is_test_attribute(attribute);
            start = attribute;
        }
        is_test.then_some(start)
    }

    /// Where the attribute starts that ends just before this place.
    fn attribute_before(&self, end: usize) -> Option<usize> {
        let close = self.tokens.get(end.checked_sub(1)?)?;
        let sign = close.mate.checked_sub(1)?;
        let is_attribute =
            close.kind == Kind::Close && self.tokens[close.mate].opens('[') && self.tokens[sign].is('#');
        is_attribute.then_some(sign)
    }
}

/// `Owner` of a pattern that begins with `Owner::Variant`.
fn owner(pattern: &[&Token]) -> Option<String> {
    let path = pattern
        .iter()
        .skip_while(|token| token.is('&'))
        .take_while(|token| token.name().is_some() || token.is(':'));
    let names: Vec<&str> = path.filter_map(|token| token.name()).collect();
    names.iter().rev().nth(1).map(|name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::token;
    use super::*;

    fn outline(text: &str) -> Outline {
        Outline::of(&token::read(text).map_err(|error| error.why).expect("Rust"))
    }

    #[test]
    fn functions_are_found_wherever_they_stand() {
        let text = "fn a() {\n}\nimpl X {\n  pub async fn b<T>(x: [u8; 2]) -> u8\n  where T: Y {\n    1\n  }\n}\ntrait Z {\n  fn c();\n  fn d() {}\n}\ntype F = fn(u8) -> u8;\n";
        let found: Vec<(String, usize, usize)> =
            outline(text).functions.into_iter().map(|f| (f.name, f.first_line, f.last_line)).collect();
        let expected = [("a", 1, 2), ("b", 4, 7), ("d", 11, 11)];
        assert_eq!(found, expected.map(|(name, first, last)| (name.to_owned(), first, last)));
    }

    #[test]
    fn tests_are_items_with_a_test_attribute() {
        let text = "//! A.\nfn real() {}\n#[tokio::test]\nasync fn one() {\n}\nimpl A {\n    #[cfg(test)]\n    fn two() {}\n    fn real() {}\n}\n#[cfg(not(test))]\nmod real {}\n#[cfg(test)]\nuse a::{\n  b};\nfn real() {}\n#[cfg(all(test, unix))]\n#[allow(x)]\nmod tests {\n    fn x() {}\n}\n";
        let outline = outline(text);
        let tests: Vec<usize> =
            (1..=21).filter(|line| outline.tests.iter().any(|lines| lines.contains(line))).collect();
        assert_eq!(tests, [3, 4, 5, 7, 8, 13, 14, 15, 17, 18, 19, 20, 21]);
        assert_eq!(outline.trailing_tests, Some(17));
    }

    #[test]
    fn only_the_last_modules_are_trailing_tests() {
        assert_eq!(outline("#[cfg(test)]\nmod a {}\n#[cfg(test)]\npub mod b {\n}\n").trailing_tests, Some(1));
        assert_eq!(outline("#[cfg(test)]\nmod a {}\nfn b() {}\n").trailing_tests, None);
        assert_eq!(outline("fn a() {}\nmod b {}\n").trailing_tests, None);
        assert_eq!(outline("").trailing_tests, None);
    }

    #[test]
    fn arms_say_what_they_take() {
        let text = "fn a() {\n match x.y(|z| { z }) {\n  Some(1) | S::A { b, .. } if c => d(e, f),\n  &m::S::B(_) => { g }\n  _ if h => {},\n  (S::C, _) => match i { _ => j },\n  K | _ => l,\n }\n}";
        let matches = outline(text).matches;
        assert_eq!(matches.len(), 2);
        let arm = |line, is_wild, owner: Option<&str>| Arm { line, is_wild, owner: owner.map(str::to_owned) };
        let expected = [
            arm(3, false, Some("S")),
            arm(4, false, Some("S")),
            arm(5, false, None),
            arm(6, false, None),
            arm(7, true, None),
        ];
        assert_eq!(matches[0], expected);
        assert_eq!(matches[1], [arm(6, true, None)]);
    }
}
