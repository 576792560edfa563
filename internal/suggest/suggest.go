// Package suggest finds the known word that somebody who made a typing mistake
// most likely meant.
package suggest

// Nearest returns the word of known that is closest to word by edit distance,
// or "" when none is close enough to be worth saying.
func Nearest(word string, known []string) string {
	best, bestDistance := "", len(word)/2+1
	for _, k := range known {
		if d := distance(word, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance counts insertions, deletions, substitutions and swaps of
// neighbours (optimal string alignment), over bytes: flags and fields are ASCII.
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
