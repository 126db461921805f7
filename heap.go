package ax
