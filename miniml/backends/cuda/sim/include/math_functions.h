// All that a kernel takes from it is there without it.
#pragma once
