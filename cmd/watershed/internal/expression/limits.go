// SPDX-License-Identifier: Apache-2.0
// Copyright The Watershed Authors

package expression

const (
	// MaxLength limits the text of an expression, in bytes.
	MaxLength = 16 << 10
	// maxDepth limits how deep operations are nested in each other. Each operator, selected field and
	// call is one level, but the parser makes a balanced tree of the operands of && and ||.
	maxDepth = 100
	// maxOperations limits the operations, among which are fields, literals and variables. The type checker
	// of cel-go takes time that is quadratic in some of them: 0.1 s at this limit.
	maxOperations = 2000
	// maxParserDepth is the same limit for the parser, which counts parentheses and brackets.
	maxParserDepth = 64
	// maxLiteral limits a string literal, in bytes.
	maxLiteral = 4 << 10
	// maxElements limits a list or map literal.
	maxElements = 1000
	// maxPattern limits the text of a regular expression, in bytes.
	maxPattern = 1 << 10
	// maxInstructions limits a compiled regular expression: a{1000} has 1,000 instructions.
	maxInstructions = 2000
	// maxOptMaps limits the calls of optMap and optFlatMap.
	maxOptMaps = 6
	// maxDigits limits the digits of a quantity, and maxExponent those after an e.
	maxDigits   = 128
	maxExponent = 4
	// maxEstimate limits the estimated units of an expression, where every list and string of the
	// object has assumedSize elements or bytes. It refuses expressions with too many nested loops.
	maxEstimate = 10_000_000
	assumedSize = 16
	// MaxCost limits the units of one evaluation.
	MaxCost = 1_000_000
	// checkEvery is after how many units the context is checked.
	checkEvery = 1000
	// zoneUnits are the units of reading a time zone.
	zoneUnits = 500
	// instructionsPerUnit is how often an instruction of a regular expression looks at a byte in a unit.
	instructionsPerUnit = 10
	// maxLoops limits the loops in an expression, of which macros such as exists and map have one each.
	maxLoops = 32
	// maxExpressions and maxExpressionBytes limit the expressions in a [Cache], and operationBytes is about
	// what an operation takes.
	maxExpressions     = 256
	maxExpressionBytes = 64 << 20
	operationBytes     = 1 << 10
	// maxDocuments limits the OpenAPI documents in a [Cache], and maxDocumentBytes their text.
	maxDocuments     = 256
	maxDocumentBytes = 32 << 20
	// maxResult limits the number of values and maxResultBytes the text in one result.
	maxResult      = 10_000
	maxResultBytes = 1 << 20
)
