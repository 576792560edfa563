package celdiff

// corpus is expressions by hand: what people write in the field, and then the
// corners of the language.
func corpus() []string {
	return []string{
		// What people write.
		"((default_enis - 1) * (ips_per_eni - 1)) + 2",
		"(default_enis * (ips_per_eni - 1)) + 2",
		"default_enis * ((ips_per_eni - 1) * 16) + 2",
		"max_pods",
		"110",
		"max_pods > 110 ? 110 : max_pods",
		"max_pods < 30 ? max_pods : 30",
		"max_pods + 2",
		"((default_enis * ((ips_per_eni * 16) - 1)) + 2) < 30 ? ((default_enis * ((ips_per_eni * 16) - 1)) + 2) : 30",
		"max_pods - ((default_enis * (ips_per_eni - 1)) + 2)",
		"max_pods - 200",
		"max_pods <= 30 ? 30 : max_pods <= 110 ? 110 : 250",
		"(max_pods > 58 && default_enis > 4) || ips_per_eni == 10 ? 58 : 110",
		"max_pods in [17, 29, 58] ? max_pods - 1 : 110",
		"int(double(max_pods) * 0.9)",
		"double(max_pods) * 0.9",
		"max_pods * 0.9",
		"max_pods * 9 / 10",
		"string(max_pods)",
		"'12'",
		"\"12\" + \"3\"",
		"'+12'",
		"'twelve'",
		"true",
		"3u",
		"18446744073709551615u",
		"[1, 2]",
		"29.9",
		"-29.9",
		"1e30",
		"99 - fake_variable",
		"max_pod",
		"math.least(max_pods, 110)",
		"math.greatest(max_pods, 110)",
		"math.ceil(1.5)",
		"min(max_pods, 110)",
		"max(max_pods, 110)",
		"ceil(1.5)",
		"max_pods.greatest(3)",
		"${max_pods}",
		"$max_pods",
		"max_pods = 3",
		"max_pods & 3",
		"max_pods | 3",
		"max_pods ** 2",
		"max_pods ^ 2",
		"max_pods;",
		"",
		" \t\n",
		"// nothing",

		// Precedence and associativity.
		"1 + 2 * 3", "1 * 2 + 3", "10 - 3 - 2", "100 / 10 / 5", "100 / 10 * 5", "17 % 5 * 2", "2 * 17 % 5", "-2 * 3", "2 * -3", "2 - -3", "2--3", "2-3",
		"1 < 2 == true", "true == 1 < 2", "1 < 2 < 3", "true || false && false", "false && false || true", "!true || true",
		"true ? 1 : false ? 2 : 3", "true ? true ? 1 : 2 : 3", "true ? (true ? 1 : 2) : 3", "false ? 1 : 2 + 3", "1 == 1 ? 2 : 3",
		"1 in [1] == true", "1 in [1] in [true]", "2 + 1 in [3]", "[1][0] + 1", "-[1][0]", "[[1, 2], [3]][0][1]",
		"default_enis<ips_per_eni?1:2", "(((((1)))))", "(1", "1)", "()", "1 +", "+ 1", "* 1", "1 2", "a b", "1 ? 2 : 3", "true ? 1", "true ? 1 :", "true ? : 1",
		"true ? 1 : 'a'", "true ? 1 : 2.0", "true ? 1 : 2u", "? 1 : 2",

		// Unary operators.
		"!!true", "!!!true", "!!5", "!5", "--5", "---5", "--'a'", "-'a'", "-true", "--true", "!-5", "-!true", "-3u", "--3u", "-(3)", "- 5", "-max_pods", "--max_pods",
		"-9223372036854775808", "--9223372036854775808", "---9223372036854775808", "-(-9223372036854775808)", "-(9223372036854775808)", "9223372036854775808",
		"-0.0", "-(0.0)", "--0.0", "-.5", "-[1]", "-(1.5)", "-default_enis * 2", "!(1 == 1)", "-5.5.5", "-\n5", "- // five\n5",

		// Literals.
		"0x1F", "0x1f", "0X1F", "-0x1F", "0x", "0xg", "0x7fffffffffffffff", "0x8000000000000000", "-0x8000000000000000", "0xffffffffffffffffu", "0x10000000000000000u",
		"007", "08", "0", "00u", "1u", "1U", "1uu", "1.0u", "1.", ".1", "1.5e3", "1.5E3", "1e3", "1e+3", "1e-3", "1e", "1e+", "1.e3", "1e400", "-1e400", "1e-400", "4.9e-324",
		"1_000", "1,000", "0.1 + 0.2", "1.5.5", "1.5 .5", "1x", "1in[1]", "1 in[1]", "0b1", "0o7", "1e3u", "18446744073709551615u", "18446744073709551616u",
		"true", "false", "True", "true()", "false.x", "max_pods.true()",

		// Strings.
		`""`, `''`, `"a" + 'b'`, `"a'b"`, `'a"b'`, `"""a"b"""`, `'''a'b'''`, `""""""`, `""""`, `"""`, `"""a""`, `"""a\""""`, "'a\nb'", "'''a\nb'''", "'''a\r\nb\rc'''", "r'''a\r\nb'''", "'a\rb'",
		`r"a\n"`, `R"a\n"`, `r'\'`, `r"""\"""`, `r"a" + "b"`, `r'a"b'`, `rr"a"`, `x"a"`, `"a`, `'a`, `"a\"`, `"\`, `'\'`, `r"`, `r'''a''`,
		`"\a\b\f\n\r\t\v\\\?\'\"` + "\\``" + `"`, `"\q"`, `"\x41"`, `"\X41"`, `"\x4"`, `"\xzz"`, `"\xff"`, `size("\xff")`, `"\101"`, `"\377"`, `"\400"`, `"\8"`, `"\18"`, `"\1"`, `"\0"`, `"\000"`,
		`"\u0041"`, `"\u004"`, `"\ud800"`, `"\U0001F600"`, `"\U00110000"`, `"\UFFFFFFFF"`, `"\U0001F60"`, `"\u+041"`, `"\x+1"`, `"\1_1"`, `"\x_1"`,
		`"é" == "\u00e9"`, `"日本" < "é"`, `size("日本")`, `"a" < "b"`, `"a" <= "a"`, `"b" > "a"`, `"" >= ""`, `"a" - "b"`, `"a" * 2`, `"a" + 1`, "'\x00'", "'a\tb'", "'a\fb'",
		`"hello".contains("ell")`, `"hello".startsWith("he")`, `"hello".endsWith("lo")`, `"hello".contains("")`, `"hello".contains(1)`, `"hello".contains()`, `"hello".contains("a", "b")`, `contains("hello", "ell")`,
		`1.contains("a")`, `["a"].contains("a")`, `"hello".size()`, `"hello".size(1)`, `size()`, `size("a", "b")`, `size(1)`, `"a".upperAscii()`, `"a".length`, `"abc"[0]`, `"a" in "abc"`, `"a".int()`,

		// Comments and space.
		"1 // one", "1 + // one\n1", "// one\n1", "1 /* one */ + 1", "1 /", "1 / / 1", "1 // one \r + 1", "\t1\r\n+\f1", "1\v+ 1", "1\u00a0+ 1", "1 \\ 2", "#1", "1 # one", "é", "@in", "`a`", "max_pods.`a`",

		// Types do not mix.
		"1 + 1.0", "1 + 1u", "1u + 1.0", "1.0 + 1", "1 == 1.0", "1 == 1u", "1u == 1.0", "1 < 1.0", "1 < 1u", "1u < 1.0", "1.0 < 1", "1u >= 1", "1 == '1'", "1 != true", "true == 'true'", "true + true", "true < false", "false < true", "true >= true", "true - false",
		"1 && true", "true && 1", "0 || true", "true || 0", "1 in [1.0]", "1 in 1", "'a' in ['a']", "[1] in [[1]]", "1 in [[1]]", "1.5 % 1.0", "1u % 2u", "[1] + [2]", "[1] + ['a']", "[1] + 1", "[1] - [1]", "[1] == [1]", "[1] != [2]", "[1] == [1.0]", "[1, 2] == [2, 1]", "[1] < [2]", "[1] == 1", "[[1], [2, 3]] == [[1], [2, 3]]",
		"[double('NaN')] == [double('NaN')]", "double('NaN') in [double('NaN')]", "double('NaN') == double('NaN')", "double('NaN') != double('NaN')", "double('NaN') < 1.0", "double('NaN') >= 1.0", "1.0 <= double('NaN')", "1.0 > double('NaN')", "0.0 == -0.0", "[0.0] == [-0.0]",
		"[1, 2][0]", "[1, 2][2]", "[1, 2][-1]", "[1, 2][0u]", "[1, 2][0.0]", "[1, 2]['0']", "[1, 2][9223372036854775807]", "[1, 2,][1]", "[1,,2]", "[1 2]", "[1, 2", "size([1, 2, 3])", "[1, 2].size()", "size([1, 2,])", "size([1], )", "1[0]", "[1].x", "[1].x()", "[?1]", "[1][?0]", "max_pods.?x", "max_pods.size", "max_pods.size()", "max_pods.", "max_pods.5", ".max_pods", ". max_pods", "..max_pods", ".", ".size('a')", ".1.size()", ".int('1')", ".true",

		// Errors in values.
		"1 / 0", "1 % 0", "1u / 0u", "1u % 0u", "1.0 / 0.0", "-1.0 / 0.0", "0.0 / 0.0", "-7 / 2", "-7 % 2", "7 % -2", "7 / -2",
		"9223372036854775807 + 1", "-9223372036854775808 - 1", "-9223372036854775808 + -1", "9223372036854775807 - -1", "9223372036854775807 * 2", "-9223372036854775808 * -1", "-1 * -9223372036854775808", "-9223372036854775808 / -1", "-9223372036854775808 % -1", "4294967296 * 2147483648", "4294967296 * -2147483648", "3037000500 * 3037000500", "0 * -9223372036854775808", "-9223372036854775808 * 1",
		"1u - 2u", "18446744073709551615u + 1u", "18446744073709551615u * 2u", "4294967296u * 4294967296u", "0u * 18446744073709551615u", "1e308 * 10.0", "1e308 + 1e308",
		"false && 1 / 0 == 1", "1 / 0 == 1 && false", "true || 1 / 0 == 1", "1 / 0 == 1 || true", "true && 1 / 0 == 1", "1 / 0 == 1 && true", "false || 1 / 0 == 1", "1 / 0 == 1 || false", "1 / 0 == 1 || 1 / 0 == 2 || true", "1 / 0 == 1 && true && false", "true && (1 / 0 == 1 || true)",
		"true ? 1 : 1 / 0", "false ? 1 / 0 : 2", "1 / 0 == 1 ? 1 : 2", "[1, 1 / 0][0]", "1 in [1, 1 / 0]", "size([1 / 0])", "!(1 / 0 == 1)", "string(1 / 0)", "max_pods / default_enis", "ips_per_eni + max_pods + 1", "default_enis / 0 > 1 || max_pods > 0",

		// Conversions.
		"int(1)", "int(1u)", "int(18446744073709551615u)", "int(1.9)", "int(-1.9)", "int(9223372036854775807.0)", "int(9223372036854774784.0)", "int(-9223372036854775808.0)", "int(-9223372036854774784.0)", "int(1e30)", "int(double('NaN'))", "int('12')", "int('-12')", "int('+12')", "int(' 12')", "int('1.5')", "int('')", "int('0x10')", "int('1_0')", "int('9223372036854775808')", "int(true)", "int([1])", "int()", "int(1, 2)", "int(int)", "int(1,)",
		"uint(1)", "uint(-1)", "uint(1.9)", "uint(-0.5)", "uint(-0.0)", "uint(18446744073709551615.0)", "uint(1.8446744073709550e19)", "uint(double('NaN'))", "uint(double('inf'))", "uint('12')", "uint('-1')", "uint('+1')", "uint(1u)", "uint(true)",
		"double(1)", "double(9223372036854775807)", "double(1u)", "double('1.5')", "double('1e3')", "double('inf')", "double('-Infinity')", "double('nan')", "double('0x1p4')", "double('1_0')", "double('a')", "double('1e400')", "double(1.5)", "double(true)",
		"string(1)", "string(-1)", "string(1u)", "string(1.0)", "string(1.5)", "string(1e6)", "string(1e20)", "string(1e21)", "string(123456789.0)", "string(0.0001)", "string(0.00001)", "string(-0.0)", "string(double('NaN'))", "string(double('inf'))", "string(double('-inf'))", "string(0.1 + 0.2)", "string(true)", "string('a')", "string([1])", "string(max_pods) + '0'",
		"bool(true)", "bool('true')", "bool('TRUE')", "bool('True')", "bool('t')", "bool('1')", "bool('yes')", "bool('')", "bool(1)", "bool('false') || true",

		// Names.
		"if", "while", "as", "package", "var", "for(1)", "import + 1", "inx", "in", "_", "_x", "max_pods()", "size", "unknown()", "unknown(1, x)", "a.b.c", "max_pods{}", "Foo{}", "foo.bar{a: 1}", "{", "}", "{1}", "max_pods.contains('a')",
	}
}
