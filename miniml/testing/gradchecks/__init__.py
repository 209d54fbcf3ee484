"""gradcheck: is a gradient that of the function, and if not, where and in what way?"""
