"""What the paper publishes (its tables 1, 2, 6 and of runtimes), as means and standard deviations.

Its ARI and silhouette of FedGEM are local, those of all other methods global (docs/errata.md, 7).
"""

from __future__ import annotations

DATA = ("mnist", "fashion-mnist", "emnist", "cifar-10", "abalone", "frog-a", "frog-b", "waveform")
OURS = "FedGEM, paper"
_COLUMNS = {
    "ari": {
        "GMM, paper (central)": "287 067  385 023  235 010  402 022  "
        "096 028  447 097  448 172  262 016",
        "k-FED": "354 082  288 101  223 031  358 043  100 030  617 144  467 148  277 061",
        "FFCM-avg1": "148 031  164 030  025 007  312 035  096 029  470 094  442 112  254 029",
        "FFCM-avg2": "336 053  352 038  114 011  513 028  102 032  720 149  645 117  268 057",
        "FedKmeans": "640 035  449 027  285 007  437 024  098 033  546 143  492 118  260 015",
        "DP-GMM (central)": "115 021  179 011  120 015  068 003  "
        "075 023  326 090  223 065  255 015",
        "AFCL": "038 002  035 002  089 005  034 002  062 020  344 108  272 079  157 036",
        OURS: "452 049  287 057  285 022  286 033  138 056  552 129  468 117  335 078",
    },
    "silhouette": {
        "GMM, paper (central)": "029 020  093 008  046 006  191 013  "
        "397 014  232 042  198 089  255 026",
        "k-FED": "076 010  106 022  075 010  177 012  406 029  285 066  278 076  245 028",
        "FFCM-avg1": "-045 030  009 002.3  -113 026  -014 045  400 011  229 051  259 061  247 008",
        "FFCM-avg2": "036 011  052 018  -077 023  087 021  404 016  272 071  324 056  231 042",
        "FedKmeans": "105 005  127 006  091 003  203 006  404 010  302 054  289 074  252 003",
        "DP-GMM (central)": "-082 014  -058 014  -063 007  117 005  "
        "324 023  171 040  144 025  115 013",
        "AFCL": "015 002  017 003  028 002  106 005  192 028  144 048  156 045  018 010",
        OURS: "095 012  069 018  063 009  094 015  307 086  324 082  284 092  271 011",
    },
    "n_clusters": {
        "DP-GMM (central)": "110.20 6.09  86.34 5.61  247.40 23.46  364.03 12.57  "
        "15.46 2.20  29.46 5.49  24.38 4.24  6.84 0.65",
        "AFCL": "501.82 18.00  501.37 22.51  575.39 55.63  502.97 19.70  "
        "25.00 4.43  28.42 6.42  23.96 4.26  12.52 1.11",
        OURS: "13.63 2.29  17.59 6.61  58.67 5.23  37.72 13.60  "
        "12.14 3.65  23.94 9.99  20.00 7.07  4.42 1.40",
    },
    "seconds": {  # of images alone
        "FFCM-avg2": "220 18  440 25  6075 842  188 8",
        "FedKmeans": "30 2  52 3  314 42  26 1",
        "AFCL": "2047 246  2013 204  3176 722  1798 165",
        OURS: "552 52  645 63  1628 335  345 35",
    },
}


def published(score: str, method: str, data: str) -> tuple[float, float] | None:
    """Return the mean and the standard deviation that the paper publishes, where it does.

    Parameters
    ----------
    score : {"ari", "silhouette", "n_clusters", "seconds"}
        What is scored, or how long a fit takes.
    method, data : str
        The method and the data set.

    Examples
    --------
    >>> published("ari", "FedGEM, paper", "mnist")
    (0.452, 0.049)
    >>> published("n_clusters", "AFCL", "waveform")
    (12.52, 1.11)
    """
    numbers = _COLUMNS[score].get(method, "").split()
    pairs = dict(zip(DATA, zip(numbers[::2], numbers[1::2], strict=True), strict=False))
    if data not in pairs:
        return None
    unit = 1 if score in ("n_clusters", "seconds") else 1000  # of the others, the decimals alone
    mean, spread = pairs[data]
    return float(mean) / unit, float(spread) / unit
