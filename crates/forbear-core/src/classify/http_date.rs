//! HTTP-dates (RFC 9110 section 5.6.7): all three forms, a leap second, and the RFC 850 century rule, which needs to
//! know the present. Names are taken in any case, which does no harm; only `GMT` is a zone.

use jiff::civil::{Date, DateTime};

use crate::time::Wall;

/// Fields of the longest form: a weekday, day, month, year, time, zone.
const FIELDS_MAX: usize = 6;
/// An RFC 850 year further ahead than this is of the past century.
const FUTURE_YEARS_MAX: i16 = 50;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Milliseconds since the epoch.
pub(super) fn parse(text: &str, now: Wall) -> Option<i64> {
    // Most values that are tried are numbers.
    if !text.as_bytes().first()?.is_ascii_alphabetic() {
        return None;
    }
    let mut fields = [""; FIELDS_MAX];
    let mut count = 0;
    for field in text.split_ascii_whitespace() {
        *fields.get_mut(count)? = field;
        count += 1;
    }
    let is = |name: &str, expect: &str| name.eq_ignore_ascii_case(expect);
    match *fields.get(..count)? {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [day_name, day, month, year, time, zone] if is(zone, "GMT") => {
            short_day(day_name.strip_suffix(',')?)?;
            instant(number(year, 4)?, month_of(month)?, number(day, 2)?, time)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        [day_name, date, time, zone] if is(zone, "GMT") => {
            let day_name = day_name.strip_suffix(',')?;
            DAYS.iter().find(|name| is(name, day_name))?;
            let mut date = date.split('-');
            let (day, month, year) = (date.next()?, date.next()?, date.next()?);
            if date.next().is_some() {
                return None;
            }
            instant(full_year(number(year, 2)?, now)?, month_of(month)?, number(day, 2)?, time)
        }
        // Sun Nov  6 08:49:37 1994
        [day_name, month, day, time, year] => {
            short_day(day_name)?;
            let day = number(day, 2).or_else(|| number(day, 1))?;
            instant(number(year, 4)?, month_of(month)?, day, time)
        }
        _ => None,
    }
}

fn short_day(name: &str) -> Option<()> {
    let known =
        DAYS.iter().any(|day| name.len() == 3 && day.get(..3).is_some_and(|day| day.eq_ignore_ascii_case(name)));
    known.then_some(())
}

fn month_of(name: &str) -> Option<i8> {
    MONTHS.iter().zip(1..).find(|(month, _)| month.eq_ignore_ascii_case(name)).map(|(_, at)| at)
}

/// Exactly so many ASCII digits.
fn number(text: &str, len: usize) -> Option<i16> {
    (text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn full_year(two_digits: i16, now: Wall) -> Option<i16> {
    let today = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_millisecond(now.0).ok()?);
    let this_year = today.year();
    let year = this_year - this_year.rem_euclid(100) + two_digits;
    Some(if year > this_year.saturating_add(FUTURE_YEARS_MAX) { year - 100 } else { year })
}

fn instant(year: i16, month: i8, day: i16, time: &str) -> Option<i64> {
    let mut parts = time.split(':');
    let (hour, minute, second) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    if parts.next().is_some() || second > 60 {
        return None;
    }
    let date = Date::new(year, month, i8::try_from(day).ok()?).ok()?;
    // A leap second is the instant after :59.
    let leap_ms = if second == 60 { 1_000 } else { 0 };
    let clock = DateTime::from_parts(
        date,
        jiff::civil::Time::new(
            i8::try_from(hour).ok()?,
            i8::try_from(minute).ok()?,
            i8::try_from(second.min(59)).ok()?,
            0,
        )
        .ok()?,
    );
    // The last hours of year 9999 are beyond what an instant can be: the last that can.
    let at = jiff::tz::Offset::UTC.to_timestamp(clock).unwrap_or(jiff::Timestamp::MAX);
    at.as_millisecond().checked_add(leap_ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Wall = Wall(1_796_000_000_000);

    fn check(text: &str, expect: Option<i64>) {
        assert_eq!(parse(text, NOW), expect.map(|s| s * 1_000), "{text}");
    }

    #[test]
    fn all_three_forms_are_read() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check("Sun Nov  6 08:49:37 1994", Some(784_111_777));
        check("Sun Nov 16 08:49:37 1994", Some(784_975_777));
        check("sun, 06 nov 1994 08:49:37 gmt", Some(784_111_777));
    }

    #[test]
    fn a_leap_second_is_the_next_one() {
        check("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_800));
        check("Sat, 31 Dec 2016 23:59:61 GMT", None);
    }

    #[test]
    fn a_short_year_is_at_most_fifty_ahead() {
        // NOW is in 2026.
        check("Thursday, 01-Jan-32 00:00:30 GMT", Some(1_956_528_030));
        check("Wednesday, 01-Jan-76 00:00:00 GMT", Some(3_345_062_400));
        check("Saturday, 01-Jan-77 00:00:00 GMT", Some(220_924_800));
    }

    #[test]
    fn other_dates_are_refused() {
        for text in [
            "",
            "Thu, 01 Jan 2032 00:00:30 UTC",
            "Thu, 01 Jan 2032 00:00:30",
            "Thu, 1 Jan 2032 00:00:30 GMT",
            "Thu 01 Jan 2032 00:00:30 GMT",
            "Thu, 32 Jan 2032 00:00:30 GMT",
            "Thu, 30 Feb 2032 00:00:30 GMT",
            "Thu, 01 Jam 2032 00:00:30 GMT",
            "Thu, 01 Jan 2032 24:00:30 GMT",
            "Thu, 01 Jan 2032 00:00 GMT",
            "Thu, 01 Jan 2032 00:00:30 GMT junk more",
            "Thurs, 01-Jan-32 00:00:30 GMT",
            "2032-01-01T00:00:30Z",
        ] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(s in 0_u64..4_000_000_000) {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(s);
            let expect = i64::try_from(s).unwrap() * 1_000;
            prop_assert_eq!(parse(&httpdate::fmt_http_date(at), NOW), Some(expect));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}", now in any::<i64>()) {
            let _ = parse(&text, Wall(now));
        }

        #[test]
        fn nothing_like_a_date_panics(text in "(Sun|Sunday)(,| )[0-9A-Za-z :-]{0,40}( GMT)?", now in any::<i64>()) {
            let _ = parse(&text, Wall(now));
        }
    }
}
